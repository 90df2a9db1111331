#include "nn/mixture/expert_exchange.h"

#include "nn/mixture/exchange_bounds.h"
#include "spec/groups.h"

namespace echelon {
namespace {

std::int64_t rows_to_others(const ExchangeRound& round, int rank) {
  std::int64_t rows = 0;
  for (std::size_t other = 0; other < round.sent.size(); ++other)
    if (static_cast<int>(other) != rank) rows += round.sent[other].count;
  return rows;
}

}  // namespace

ExpertExchange::ExpertExchange(const LayerOptions& options)
    : num_ranks_(options.ep),
      rank_(options.ep_rank),
      num_experts_(options.model.mixture.num_experts),
      most_rows_(most_rows_of(options)),
      num_rows_(options.num_local_tokens() * options.model.mixture.num_experts_per_tok),
      shares_(options.expert_shares),
      kept_shares_(options.kept_shares) {
  if (options.ep_on_node == 0) return;
  node_shares_ = node_shares_of(options, shares_);
  if (!kept_shares_.empty()) kept_node_shares_ = node_shares_of(options, kept_shares_);
  nodes_ = node_sizes_of(options, node_shares_);
}

Sizes ExpertExchange::of_ranks_sizes() const {
  if (nodes_) return {num_ranks_ * nodes_->num_tokens, nodes_->experts_per_token};
  return {num_ranks_, num_experts_ + 1};
}

void ExpertExchange::gather(Context& context, Tensor of_ranks, Tensor offsets, Tensor experts) const {
  context.ops.publish();
  if (!nodes_) return context.mesh.comm(expert_group(num_ranks_)).all_gather(of_ranks, offsets).wait();
  const Stack::Scope scope(context.workspace);
  const Tensor of_place =
      context.workspace.take(DType::int32, {nodes_->num_nodes * nodes_->num_tokens, nodes_->experts_per_token});
  context.mesh.comm(expert_across_group(num_ranks_, nodes_->ranks_per_node)).all_gather(of_place, experts).wait();
  context.mesh.comm(expert_node_group(nodes_->ranks_per_node)).all_gather(of_ranks, of_place).wait();
}

ExpertRounds ExpertExchange::planned(const Context& context) const {
  const bool drops = context.microbatch.needs_gradient && !kept_shares_.empty();
  if (nodes_) return ExpertRounds(NodePlan(*nodes_, drops ? kept_node_shares_ : node_shares_));
  const std::vector<double>& shares = drops ? kept_shares_ : shares_;
  return ExpertRounds(shares.empty() ? ExchangePlan::balanced(num_rows_, num_ranks_, rank_, most_rows_)
                                     : ExchangePlan::of_shares(shares, num_rows_, rank_, most_rows_));
}

ExpertRounds ExpertExchange::plan(Context& context, Tensor of_ranks) const {
  const ExpertRounds before = planned(context);
  if (!context.ops.computes_values()) return before;
  std::vector<std::int32_t> known(static_cast<std::size_t>(of_ranks.num_elements()));
  context.ops.download(known.data(), of_ranks);
  if (nodes_) return ExpertRounds(NodePlan(*nodes_, std::move(known), before.num_rounds()));
  ExchangePlan plan(known, num_ranks_, rank_, most_rows_);
  plan.take_rounds(before.num_rounds());
  return ExpertRounds(std::move(plan));
}

Tensor ExpertExchange::sent_slots(Context& context, const ExpertRounds& plan, Tensor slots) const {
  if (!nodes_) return slots;
  const Tensor to_nodes = context.workspace.take(DType::int32, {nodes_->num_tokens, nodes_->nodes_per_token()});
  const bool has_values = context.ops.computes_values();
  const std::vector<std::int32_t> values = has_values ? plan.by_node().sent_slots() : std::vector<std::int32_t>();
  context.ops.upload_like(to_nodes, values.data(), slots);
  return to_nodes;
}

void ExpertExchange::order(Context& context, const ExpertRounds& plan, int round, Tensor of_ranks,
                           const ArrivedRows& rows, const ArrivedRows& like) const {
  if (!nodes_) {
    context.ops.arrived_slots({.of_ranks = of_ranks,
                               .slots = rows.slots,
                               .offsets = rows.offsets,
                               .first_expert = rank_ * num_experts(),
                               .first_row = plan.direct().first_row(round)});
    return;
  }
  const NodeRound& of = plan.by_node().round(round);
  if (of.num_rows > 0) context.ops.upload_like(rows.slots.rows(0, of.num_rows), of.slots.data(), like.slots);
  context.ops.upload_like(rows.offsets, of.offsets.data(), like.offsets);
}

void ExpertExchange::dispatch(Context& context, const ExpertRounds& plan, int round,
                              std::span<const Matrices> all) const {
  if (nodes_) return dispatch_by_node(context, plan.by_node(), round, all);
  exchange(context, plan, round, all, Way::there);
}

void ExpertExchange::give_back(Context& context, const ExpertRounds& plan, int round,
                               std::span<const Matrices> all) const {
  if (nodes_) return give_back_by_node(context, plan.by_node(), round, all);
  exchange(context, plan, round, all, Way::back);
}

void ExpertExchange::count_flops(Context& context, const ExpertRounds& plan, int round, std::int64_t of_row) const {
  if (context.microbatch.expert_traffic == nullptr) return;
  const ExpertRounds before = planned(context);
  const std::int64_t num_planned = round < before.num_rounds() ? before.num_received(round) : 0;
  *context.microbatch.expert_traffic +=
      {.flops = plan.num_received(round) * of_row, .planned_flops = num_planned * of_row};
}

void ExpertExchange::exchange(Context& context, const ExpertRounds& plan, int round, std::span<const Matrices> all,
                              Way way) const {
  const ExchangeRound parts = plan.direct().round(round);
  Comm& comm = context.mesh.comm(expert_group(num_ranks_));
  context.ops.publish();
  std::vector<Pending> pending;
  context.mesh.together([&] {
    for (const auto& [arrived, sent] : all)
      pending.push_back(way == Way::there ? comm.all_to_all_rows({arrived, sent, parts.received, parts.sent})
                                          : comm.all_to_all_rows({sent, arrived, parts.sent, parts.received}));
  });
  for (Pending& each : pending) each.wait();
  if (context.microbatch.expert_traffic == nullptr) return;
  ExpertTraffic& traffic = *context.microbatch.expert_traffic;
  const ExpertRounds before = planned(context);
  const ExchangeRound planned_parts = round < before.num_rounds() ? before.direct().round(round) : ExchangeRound();
  const auto rows_of = [&](const ExchangeRound& of) {
    if (way == Way::there) return rows_to_others(of, rank_);
    return rows_to_others({of.received, of.sent}, rank_);
  };
  for (const Matrices& matrices : all) {
    const std::int64_t row_bytes = matrices.arrived.size(1) * size_of(matrices.arrived.dtype);
    traffic.sent_bytes += rows_of(parts) * row_bytes;
    traffic.planned_sent_bytes += rows_of(planned_parts) * row_bytes;
  }
}

}  // namespace echelon
