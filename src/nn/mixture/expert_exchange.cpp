#include "nn/mixture/expert_exchange.h"

#include "nn/mixture/exchange_bounds.h"
#include "nn/mixture/row_parts.h"
#include "spec/groups.h"

namespace echelon {
namespace {

/// Of rounds after those that were planned: none.
template <class Counts>
Counts at_round(const std::vector<Counts>& planned, int round) {
  return round < std::ssize(planned) ? planned[static_cast<std::size_t>(round)] : Counts();
}

}  // namespace

ExpertExchange::ExpertExchange(const LayerOptions& options)
    : num_ranks_(options.num_expert_ranks()),
      rank_(options.ep_rank * options.etp + options.etp_rank),
      num_parts_(options.ep),
      mixture_row_(static_cast<std::size_t>(options.mixture_row)),
      num_experts_(options.model.mixture.num_experts),
      most_rows_(most_rows_of(options)),
      num_rows_(options.num_local_tokens() * options.model.mixture.num_experts_per_tok),
      shares_(options.expert_shares),
      kept_shares_(options.kept_shares) {
  if (options.etp > 1 && options.ep_on_node == 0)
    features_ = {.num_parts = options.ep,
                 .num_places = options.etp,
                 .rank = rank_,
                 .num_experts = num_experts_,
                 .num_rows = num_rows_,
                 .most_rows = most_rows_};
  if (options.ep_on_node > 0) {
    node_shares_ = node_shares_of(options, shares_);
    if (!kept_shares_.empty()) kept_node_shares_ = node_shares_of(options, kept_shares_);
    nodes_ = node_sizes_of(options);
  }
  const auto counts_of = [&](const ExpertRounds& plan) {
    std::vector<RowCounts> counts;
    for (int round = 0; round < plan.num_rounds(); ++round) counts.push_back(row_counts({plan, round}));
    return counts;
  };
  if (is_needed()) planned_ = counts_of(plan_of_shares(false));
  if (is_needed() && !kept_shares_.empty()) planned_kept_ = counts_of(plan_of_shares(true));
}

Sizes ExpertExchange::of_ranks_sizes() const {
  if (nodes_) return {num_ranks_ * nodes_->num_tokens, nodes_->experts_per_token};
  return {num_ranks_, num_experts_ + 1};
}

std::vector<std::int32_t> ExpertExchange::even_loads() const {
  std::vector<std::int32_t> loads(static_cast<std::size_t>(of_ranks_sizes().num_elements()));
  const std::int64_t E = num_experts_;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    loads[i] = static_cast<std::int32_t>(nodes_ ? index % E : index % (E + 1) * num_rows_ / E);
  }
  return loads;
}

void ExpertExchange::gather(Context& context, Tensor of_ranks, Tensor offsets, Tensor experts) const {
  if (!context.mesh.has_peers() && context.ops.computes_values())
    return context.ops.upload(of_ranks, even_loads().data());
  context.ops.publish();
  const Tensor own = nodes_ ? experts : offsets;
  const int inside = num_inside();
  if (inside == 1) return context.mesh.comm(expert_group(num_ranks_)).all_gather(of_ranks, own).wait();
  const Stack::Scope scope(context.workspace);
  const Tensor of_place = context.workspace.take(
      DType::int32, nodes_ ? Sizes{nodes_->num_nodes * nodes_->num_tokens, nodes_->experts_per_token}
                           : Sizes{num_parts_, num_experts_ + 1});
  context.mesh.comm(expert_across_group(num_ranks_, inside)).all_gather(of_place, own).wait();
  context.mesh.comm(expert_inner_group(inside)).all_gather(of_ranks, of_place).wait();
}

ExpertRounds ExpertExchange::plan_of_shares(bool drops) const {
  if (nodes_) return ExpertRounds(NodePlan(*nodes_, drops ? kept_node_shares_ : node_shares_));
  const std::vector<double>& shares = drops ? kept_shares_ : shares_;
  if (features_) return ExpertRounds(FeaturePlan(*features_, shares));
  return ExpertRounds(shares.empty() ? ExchangePlan::balanced(num_rows_, num_ranks_, rank_, most_rows_)
                                     : ExchangePlan::of_shares(shares, num_rows_, rank_, most_rows_));
}

ExpertRounds ExpertExchange::plan(Context& context, Tensor of_ranks) const {
  ExpertLoads* const loads = context.microbatch.expert_loads;
  const bool has_values = context.ops.computes_values();
  if (!has_values && loads == nullptr) return plan_of_shares(drops(context));
  const auto least_rounds = static_cast<int>(planned(context).size());
  std::vector<std::int32_t> known(static_cast<std::size_t>(of_ranks.num_elements()));
  if (has_values) {
    context.ops.download(known.data(), of_ranks);
    if (loads != nullptr) loads->add(known);
  } else {
    known = loads->next();
  }
  if (nodes_) return ExpertRounds(NodePlan(*nodes_, std::move(known), least_rounds));
  if (features_) return ExpertRounds(FeaturePlan(*features_, std::move(known), least_rounds));
  ExchangePlan plan(known, num_ranks_, rank_, most_rows_);
  plan.take_rounds(least_rounds);
  return ExpertRounds(std::move(plan));
}

Tensor ExpertExchange::sent_slots(Context& context, const ExpertRounds& plan, Tensor slots) const {
  if (!nodes_) return slots;
  const Tensor to_nodes = context.workspace.take(DType::int32, {nodes_->num_tokens, nodes_->parts_per_token()});
  const bool has_values = context.ops.computes_values();
  const std::vector<std::int32_t> values = has_values ? plan.by_node().sent_slots() : std::vector<std::int32_t>();
  context.ops.upload_like(to_nodes, values.data(), slots);
  return to_nodes;
}

void ExpertExchange::order(Context& context, const ExpertRounds& plan, int round, Tensor of_ranks,
                           const ArrivedRows& rows, const ArrivedRows& like) const {
  if (features_) {
    const FeaturePlan::Order of = plan.by_features().order(round);
    if (const std::int64_t count = plan.num_received(round); count > 0)
      context.ops.upload_like(rows.slots.rows(0, count), of.slots.data(), like.slots);
    context.ops.upload_like(rows.offsets, of.offsets.data(), like.offsets);
    return;
  }
  if (!nodes_) {
    context.ops.arrived_slots({.of_ranks = of_ranks,
                               .slots = rows.slots,
                               .offsets = rows.offsets,
                               .first_expert = rank_ * num_experts(),
                               .first_row = plan.direct().first_row(round)});
    return;
  }
  const NodeRound& of = plan.by_node().round(round);
  if (const std::int64_t count = of.num_rows; count > 0)
    context.ops.upload_like(rows.slots.rows(0, count), of.slots.data(), like.slots.rows(0, count));
  context.ops.upload_like(rows.offsets, of.offsets.data(), like.offsets);
}

Travel ExpertExchange::dispatch(Context& context, const Round& round, std::span<const Matrices> all,
                                const Room& room) const {
  if (nodes_) return dispatch_by_node(context, round, all, room);
  if (features_) return dispatch_to_features(context, round, all, room);
  return start(context, round, all, Way::there);
}

Travel ExpertExchange::give_back(Context& context, const Round& round, std::span<const Matrices> all,
                                 const Room& room) const {
  if (nodes_) return give_back_by_node(context, round, all, room);
  if (features_) return give_back_from_features(context, round, all, room);
  return start(context, round, all, Way::back);
}

void ExpertExchange::count_flops(Context& context, const ExpertRounds& plan, int round, std::int64_t of_row) const {
  count(context, {.flops = plan.num_received(round) * of_row,
                  .planned_flops = at_round(planned(context), round).computed * of_row});
}

Travel ExpertExchange::start(Context& context, const Round& round, std::span<const Matrices> all, Way way) const {
  const ExchangeRound parts = round.plan.direct().round(round.index);
  Hop hop = {.purpose = way == Way::there ? RowPurpose::dispatch : RowPurpose::combine,
             .group = expert_group(num_ranks_),
             .received_parts = parts.received,
             .sent_parts = parts.sent};
  if (way == Way::back) std::swap(hop.received_parts, hop.sent_parts);
  for (const auto& [arrived, sent, free] : all)
    hop.rows.emplace_back(way == Way::there ? arrived : sent, way == Way::there ? sent : arrived);
  Travel travel = start_hop(context, hop);
  count_bytes(context, round, all, way);
  return travel;
}

ExpertExchange::RowCounts ExpertExchange::row_counts(const Round& round) const {
  if (features_) {
    const FeatureRound of = round.plan.by_features().round(round.index);
    return {.there = sum_of_others(of.given, features_->place()),
            .back = sum_of_others(of.gathered, features_->place()),
            .there_across = sum_of_others(of.across.sent, features_->part()),
            .back_across = sum_of_others(of.across.received, features_->part()),
            .computed = of.num_gathered};
  }
  if (!nodes_) {
    const ExchangeRound of = round.plan.direct().round(round.index);
    return {.there = sum_of_others(of.sent, rank_),
            .back = sum_of_others(of.received, rank_),
            .computed = round.plan.num_received(round.index)};
  }
  const NodeRound& of = round.plan.by_node().round(round.index);
  return {.there = sum_of_others(of.sent_inside, nodes_->place()),
          .back = sum_of_others(of.received_inside, nodes_->place()),
          .there_across = sum_of_others(of.sent_across, nodes_->node()),
          .back_across = sum_of_others(of.received_across, nodes_->node()),
          .computed = of.num_rows};
}

void ExpertExchange::count_bytes(Context& context, const Round& round, std::span<const Matrices> all, Way way) const {
  ExpertTraffic traffic;
  const auto add = [&](const RowCounts& of, std::int64_t& across, std::int64_t& inside) {
    const bool goes = way == Way::there;
    for (const auto& [arrived, sent, free] : all) {
      inside += (goes ? of.there : of.back) * arrived.size(1) * size_of(arrived.dtype);
      across += (goes ? of.there_across : of.back_across) * sent.size(1) * size_of(sent.dtype);
    }
  };
  add(row_counts(round), traffic.across_bytes, traffic.sent_bytes);
  add(at_round(planned(context), round.index), traffic.planned_across_bytes, traffic.planned_sent_bytes);
  count(context, traffic);
}

// The parts belong to the transport as the rows do. Those of a vector stay where they are when it is moved.
Travel ExpertExchange::start_hop(Context& context, const Hop& hop) {
  Travel travel;
  travel.received_parts_ = hop.received_parts;
  travel.sent_parts_ = hop.sent_parts;
  Comm& comm = context.mesh.comm(hop.group);
  context.ops.publish();
  context.mesh.together([&] {
    for (const auto& [received, sent] : hop.rows)
      travel.pending_.push_back(
          comm.all_to_all_rows({received, sent, travel.received_parts_, travel.sent_parts_, hop.purpose}));
  });
  return travel;
}

}  // namespace echelon
