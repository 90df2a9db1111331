#include "nn/mixture/expert_exchange.h"

#include "spec/groups.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

/// That experts of one rank take of all sequences of their group, which holds the same part of each.
std::int64_t rows_within_capacity(const LayerOptions& options) {
  const std::int64_t ranks_of_sequence = (options.tokens ? options.tokens->cp : 1) * options.tp;
  return options.num_sequences * std::max<std::int64_t>(1, options.ep / ranks_of_sequence) *
         (options.model.mixture.num_experts / options.ep) * options.expert_capacity;
}

std::int64_t most_rows_of(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  const std::int64_t tokens = options.num_local_tokens(), rows = tokens * spec.num_experts_per_tok,
                     ever = options.ep * tokens * std::min(spec.num_experts_per_tok, spec.num_experts / options.ep);
  // Evaluations drop nothing: R rows take one round if loads are even.
  if (options.expert_capacity > 0) return std::min(ever, std::max(rows, rows_within_capacity(options)));
  const auto bound = static_cast<std::int64_t>(std::ceil(options.dispatch_bound * static_cast<double>(rows)));
  return std::max<std::int64_t>(1, std::min(bound, ever));
}

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
      kept_shares_(options.kept_shares) {}

Comm& ExpertExchange::comm(Context& context) const { return context.mesh.comm(expert_group(num_ranks_)); }

ExchangePlan ExpertExchange::planned(const Context& context) const {
  const std::vector<double>& shares =
      context.microbatch.needs_gradient && !kept_shares_.empty() ? kept_shares_ : shares_;
  return shares.empty() ? ExchangePlan::balanced(num_rows_, num_ranks_, rank_, most_rows_)
                        : ExchangePlan::of_shares(shares, num_rows_, rank_, most_rows_);
}

void ExpertExchange::gather(Context& context, Tensor of_ranks, Tensor offsets) const {
  context.ops.publish();
  comm(context).all_gather(of_ranks, offsets).wait();
}

ExchangePlan ExpertExchange::plan(Context& context, Tensor of_ranks) const {
  const ExchangePlan before = planned(context);
  if (!context.ops.computes_values()) return before;
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(of_ranks.num_elements()));
  context.ops.download(offsets.data(), of_ranks);
  ExchangePlan plan(offsets, num_ranks_, rank_, most_rows_);
  plan.take_rounds(before.num_rounds());
  return plan;
}

void ExpertExchange::dispatch(Context& context, const ExchangePlan& plan, int round,
                              std::span<const Matrices> all) const {
  exchange(context, plan, round, all, Way::there);
}

void ExpertExchange::give_back(Context& context, const ExchangePlan& plan, int round,
                               std::span<const Matrices> all) const {
  exchange(context, plan, round, all, Way::back);
}

void ExpertExchange::count_flops(Context& context, const ExchangePlan& plan, int round, std::int64_t of_row) const {
  if (context.microbatch.expert_traffic == nullptr) return;
  *context.microbatch.expert_traffic +=
      {.flops = plan.num_received(round) * of_row, .planned_flops = planned(context).num_received(round) * of_row};
}

void ExpertExchange::exchange(Context& context, const ExchangePlan& plan, int round, std::span<const Matrices> all,
                              Way way) const {
  const ExchangeRound parts = plan.round(round);
  context.ops.publish();
  std::vector<Pending> pending;
  context.mesh.together([&] {
    for (const auto& [arrived, of_ranks] : all)
      pending.push_back(way == Way::there
                            ? comm(context).all_to_all_rows({arrived, of_ranks, parts.received, parts.sent})
                            : comm(context).all_to_all_rows({of_ranks, arrived, parts.sent, parts.received}));
  });
  for (Pending& each : pending) each.wait();
  if (context.microbatch.expert_traffic == nullptr) return;
  ExpertTraffic& traffic = *context.microbatch.expert_traffic;
  const ExchangePlan before = planned(context);
  const ExchangeRound planned_parts = round < before.num_rounds() ? before.round(round) : ExchangeRound();
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
