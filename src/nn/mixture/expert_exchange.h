// Experts over ranks: rows go to the ranks of their experts and come back (GShard, Lepikhin et al. 2020,
// arXiv:2006.16668), without padding and without dropping any. The ranks of an expert group have all experts together,
// E / P each, and tokens of their own.
//
//     sent         directly [R, columns], ordered by expert; or [S, columns], once for each node, ordered by node
//     dispatch     sent -> [Q, columns], ordered by the rank they came from
//     give_back    the inverse; rows that are in no part of the round keep their values
//
// Each rank needs the counts of all ranks (exchange_plan.h) or their choices (node_plan.h) to know what it receives, so
// the host reads them: on a GPU it waits for the router once for each layer and pass.
#pragma once

#include "nn/context.h"
#include "nn/mixture/exchange_plan.h"
#include "nn/mixture/node_plan.h"

#include <variant>

namespace echelon {

/// The rounds of an exchange of either kind.
class ExpertRounds {
 public:
  explicit ExpertRounds(std::variant<ExchangePlan, NodePlan> plan) : plan_(std::move(plan)) {}

  [[nodiscard]] const ExchangePlan& direct() const { return std::get<ExchangePlan>(plan_); }
  [[nodiscard]] const NodePlan& by_node() const { return std::get<NodePlan>(plan_); }
  [[nodiscard]] int num_rounds() const {
    return std::visit([](const auto& plan) { return plan.num_rounds(); }, plan_);
  }
  /// Rows that this rank sends in all rounds, the first ones of those that it may.
  [[nodiscard]] Tensor rows_of(Tensor sent) const {
    return sent.rows(0, std::visit([](const auto& plan) { return plan.num_sent(); }, plan_));
  }
  /// Rows that this rank receives in a round.
  [[nodiscard]] std::int64_t num_received(int round) const {
    const auto* const nodes = std::get_if<NodePlan>(&plan_);
    return nodes != nullptr ? nodes->round(round).num_rows : direct().num_received(round);
  }

 private:
  std::variant<ExchangePlan, NodePlan> plan_;
};

class ExpertExchange {
 public:
  explicit ExpertExchange(const LayerOptions& options);

  /// False where this rank has all experts.
  [[nodiscard]] bool is_needed() const { return num_ranks_ > 1; }
  [[nodiscard]] std::int64_t num_experts() const { return num_experts_ / num_ranks_; }  // of this rank
  /// Q: as many as the bound or the capacity of experts says, and no more than could ever come.
  [[nodiscard]] std::int64_t most_rows() const { return nodes_ ? nodes_->most_rows : most_rows_; }
  /// R, or S where tokens are sent once for each node.
  [[nodiscard]] std::int64_t num_sent() const {
    return nodes_ ? nodes_->num_tokens * nodes_->nodes_per_token() : num_rows_;
  }
  /// Weights of a row that is sent.
  [[nodiscard]] std::int64_t num_weights() const { return nodes_ ? nodes_->experts_per_token : 1; }
  [[nodiscard]] bool sends_to_nodes() const { return nodes_.has_value(); }

  /// int32: the offsets of all ranks [P, E + 1], or their choices [P N, k].
  [[nodiscard]] Sizes of_ranks_sizes() const;
  /// Of this rank: offsets int32 [E + 1], and experts int32 [N, k], -1 for what is dropped.
  void gather(Context& context, Tensor of_ranks, Tensor offsets, Tensor experts) const;
  /// Waits for them. Without values it is what is planned; with values it has as many rounds at least.
  [[nodiscard]] ExpertRounds plan(Context& context, Tensor of_ranks) const;
  /// Which rows of `sent` each token is in, in the workspace: the router's slots [N, k], or [N, S / N].
  [[nodiscard]] Tensor sent_slots(Context& context, const ExpertRounds& plan, Tensor slots) const;

  /// Where rows that arrive are when they are ordered by expert [Q, 1], and where each expert's start [E / P + 1].
  struct ArrivedRows {
    Tensor slots, offsets;
  };
  /// `like`: rows that have arrived, and offsets of experts.
  void order(Context& context, const ExpertRounds& plan, int round, Tensor of_ranks, const ArrivedRows& rows,
             const ArrivedRows& like) const;

  /// Two matrices with the same rows.
  struct Matrices {
    Tensor arrived;  // [Q, columns]
    Tensor sent;     // of tokens of this rank; of weights [S, k], where `arrived` is [Q, 1]
  };
  void dispatch(Context& context, const ExpertRounds& plan, int round, std::span<const Matrices> all) const;
  void give_back(Context& context, const ExpertRounds& plan, int round, std::span<const Matrices> all) const;
  /// Takes the workspace of either, and gives it back.
  void reserve(Stack& workspace, std::span<const Matrices> all) const;
  /// Counts what is computed with the rows of a round.
  void count_flops(Context& context, const ExpertRounds& plan, int round, std::int64_t of_row) const;

 private:
  enum class Way : std::uint8_t { there, back };
  void exchange(Context& context, const ExpertRounds& plan, int round, std::span<const Matrices> all, Way way) const;
  /// Before loads are known.
  [[nodiscard]] ExpertRounds planned(const Context& context) const;

  // In two hops (node_exchange.cpp).
  struct Hop;
  void hop(Context& context, const Hop& hop) const;
  void dispatch_by_node(Context& context, const NodePlan& plan, int round, std::span<const Matrices> all) const;
  void give_back_by_node(Context& context, const NodePlan& plan, int round, std::span<const Matrices> all) const;
  void count_bytes(Context& context, const NodePlan& plan, int round, std::span<const Matrices> all, Way way) const;

  int num_ranks_, rank_;
  std::int64_t num_experts_, most_rows_, num_rows_;
  std::vector<double> shares_, kept_shares_;  // LayerOptions
  std::optional<NodeSizes> nodes_;
  NodeShares node_shares_, kept_node_shares_;
};

}  // namespace echelon
