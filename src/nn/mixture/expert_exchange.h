// Experts over ranks: rows go to the ranks of their experts and come back (GShard, Lepikhin et al. 2020,
// arXiv:2006.16668), without padding and without dropping any. The ranks of an expert group have all experts together,
// E / P each, and tokens of their own. Or ETP of them have features of the same experts (feature_plan.h).
//
//     sent         directly [R, columns], ordered by expert; or [S, columns], once for each node, ordered by node, or
//                  once for all
//     dispatch     sent -> [Q, columns], ordered by the rank they came from
//     give_back    the inverse; rows that are in no part of the round keep their values
//
// Both start and return a Travel: a rank computes something else before it waits.
//
// Each rank needs the counts of all ranks (exchange_plan.h) or their choices (node_plan.h) to know what it receives, so
// the host reads them: on a GPU it waits for the router once for each layer and pass.
#pragma once

#include "nn/context.h"
#include "nn/mixture/exchange_plan.h"
#include "nn/mixture/feature_plan.h"
#include "nn/mixture/node_plan.h"

#include <functional>
#include <utility>
#include <variant>
#include <vector>

namespace echelon {

/// The rounds of an exchange of any kind.
class ExpertRounds {
 public:
  using Plan = std::variant<ExchangePlan, NodePlan, FeaturePlan>;
  explicit ExpertRounds(Plan plan) : plan_(std::move(plan)) {}

  [[nodiscard]] const ExchangePlan& direct() const { return std::get<ExchangePlan>(plan_); }
  [[nodiscard]] const NodePlan& by_node() const { return std::get<NodePlan>(plan_); }
  [[nodiscard]] const FeaturePlan& by_features() const { return std::get<FeaturePlan>(plan_); }
  [[nodiscard]] int num_rounds() const {
    return std::visit([](const auto& plan) { return plan.num_rounds(); }, plan_);
  }
  /// Rows that this rank sends in all rounds, the first ones of those that it may.
  [[nodiscard]] Tensor rows_of(Tensor sent) const {
    return sent.rows(0, std::visit([](const auto& plan) { return plan.num_sent(); }, plan_));
  }
  /// Rows that this rank receives in a round.
  [[nodiscard]] std::int64_t num_received(int round) const {
    if (const auto* const nodes = std::get_if<NodePlan>(&plan_)) return nodes->round(round).num_rows;
    if (const auto* const features = std::get_if<FeaturePlan>(&plan_)) return features->num_received(round);
    return direct().num_received(round);
  }

 private:
  Plan plan_;
};

/// Rows on their way. Until wait() returns, what is sent and received belongs to the exchange, and so does its room.
class Travel {
 public:
  void wait() {
    for (Pending& each : std::exchange(pending_, {})) each.wait();
    if (const auto go_on = std::exchange(go_on_, {})) go_on();
  }

 private:
  friend class ExpertExchange;
  std::vector<RowPart> received_parts_ = {}, sent_parts_ = {};
  std::vector<Pending> pending_ = {};
  std::function<void()> go_on_ = {};  // inside of the node or of ranks of features, after the hop across
};

class ExpertExchange {
 public:
  explicit ExpertExchange(const LayerOptions& options);

  /// False where rows stay on this rank.
  [[nodiscard]] bool is_needed() const { return num_ranks_ > 1; }
  [[nodiscard]] std::int64_t num_experts() const { return num_experts_ / num_parts_; }  // of this rank
  /// Q: as many as the bound or the capacity of experts says, and no more than could ever come.
  [[nodiscard]] std::int64_t most_rows() const {
    if (features_) return features_->most_gathered();
    return nodes_ ? nodes_->most_rows : most_rows_;
  }
  /// R, or S where tokens are sent once for each node.
  [[nodiscard]] std::int64_t num_sent() const {
    return nodes_ ? nodes_->num_tokens * nodes_->parts_per_token() : num_rows_;
  }
  /// Weights of a row that is sent.
  [[nodiscard]] std::int64_t num_weights() const { return nodes_ ? nodes_->experts_per_token : 1; }
  [[nodiscard]] bool sends_to_nodes() const { return nodes_.has_value(); }
  /// Tokens of all ranks come to each, which makes rows of them, ordered by expert, in `free`; and gives back sums.
  [[nodiscard]] bool gathers_tokens() const { return nodes_ && nodes_->gives_all(); }

  /// int32: the offsets of all ranks [P, E + 1], with features on several by place and part; or their choices [P N, k].
  [[nodiscard]] Sizes of_ranks_sizes() const;
  /// Of this rank: offsets int32 [E + 1], and experts int32 [N, k], -1 for what is dropped. Without peers loads are
  /// even.
  void gather(Context& context, Tensor of_ranks, Tensor offsets, Tensor experts) const;
  /// Waits for them. Without values it is what is planned, or of the microbatch's loads; else it has as many rounds as
  /// planned at least.
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
    Tensor arrived;    // [Q, columns]
    Tensor sent;       // of tokens of this rank; of weights [S, k], where `arrived` is [Q, 1]
    Tensor free = {};  // like `arrived`: unused before rows have arrived, and after they have left
  };
  /// What rows need on their way in two hops; directly they need nothing.
  struct Room {
    /// Rows of tokens at their node, and copies of them, unless these are in `arrived` and `free`. To ranks of
    /// features: rows that have come, and addends.
    struct AtNode {
      Tensor tokens, copies;
    };
    std::vector<AtNode> rows = {};  // of each pair of matrices
    Tensor slots = {};
  };
  /// In the workspace, for these matrices or the first ones of them.
  [[nodiscard]] Room take_room(Stack& workspace, std::span<const Matrices> all) const;
  /// Of rounds in two hops the hop across nodes is under way until wait(). The one inside of a node is waited for at
  /// once.
  struct Round {
    const ExpertRounds& plan;
    int index = 0;
  };
  [[nodiscard]] Travel dispatch(Context& context, const Round& round, std::span<const Matrices> all,
                                const Room& room) const;
  [[nodiscard]] Travel give_back(Context& context, const Round& round, std::span<const Matrices> all,
                                 const Room& room) const;
  /// Where tokens were gathered: rows ordered by expert -> a sum for each token [G, columns], in the workspace, which
  /// is an addend over ranks. Of weights [Q, 1] -> [G, k], which are not summed.
  [[nodiscard]] Tensor sums_of_tokens(Context& context, const Round& round, Tensor rows, std::int64_t columns) const;
  /// Adds to the traffic of this layer, if it is counted.
  void count(Context& context, const ExpertTraffic& more) const {
    if (!context.microbatch.expert_traffic.empty()) context.microbatch.expert_traffic[mixture_row_] += more;
  }
  /// Counts what is computed with the rows of a round.
  void count_flops(Context& context, const ExpertRounds& plan, int round, std::int64_t of_row) const;

 private:
  enum class Way : std::uint8_t { there, back };
  /// As of_ranks_sizes() says.
  [[nodiscard]] std::vector<std::int32_t> even_loads() const;
  /// Rows that this rank sends to others in a round, there and back: directly or inside of its node, and across nodes
  /// or parts; and those that it computes.
  struct RowCounts {
    std::int64_t there = 0, back = 0, there_across = 0, back_across = 0, computed = 0;
  };
  [[nodiscard]] RowCounts row_counts(const Round& round) const;
  void count_bytes(Context& context, const Round& round, std::span<const Matrices> all, Way way) const;
  /// Before loads are known. In training experts with a capacity drop rows.
  [[nodiscard]] ExpertRounds plan_of_shares(bool drops) const;
  [[nodiscard]] bool drops(const Context& context) const {
    return context.microbatch.needs_gradient && !kept_shares_.empty();
  }
  /// That plan, round by round.
  [[nodiscard]] const std::vector<RowCounts>& planned(const Context& context) const {
    return drops(context) ? planned_kept_ : planned_;
  }

  [[nodiscard]] Travel start(Context& context, const Round& round, std::span<const Matrices> all, Way way) const;

  /// Where tokens and copies, or what has come and addends, of the matrices are.
  [[nodiscard]] static Room::AtNode at_node(const Matrices& matrices, const Room::AtNode& room) {
    const Tensor free = matrices.free.exists() ? matrices.free : matrices.arrived;
    return {room.tokens.exists() ? room.tokens : matrices.arrived, room.copies.exists() ? room.copies : free};
  }
  /// Of at most so many tokens or copies, unless they need none of their own. Tokens are read before their copies
  /// arrive, and summed after these have gone back inside.
  [[nodiscard]] static Tensor take_tokens(Stack& workspace, const Matrices& matrices, std::int64_t most_tokens) {
    const bool are_in_arrived = matrices.free.exists() && most_tokens <= matrices.arrived.size(0);
    return are_in_arrived ? Tensor() : workspace.take(matrices.sent.dtype, {most_tokens, matrices.sent.size(1)});
  }
  [[nodiscard]] static Tensor take_copies(Stack& workspace, const Matrices& matrices, std::int64_t most_copies) {
    const bool are_in_free = matrices.free.exists() && most_copies <= matrices.free.size(0);
    const Tensor& rows = matrices.arrived;
    return are_in_free ? Tensor() : workspace.take(rows.dtype, {most_copies, rows.size(1)});
  }

  /// Rows between the ranks of a group.
  struct Hop {
    RowPurpose purpose;
    Group group;
    std::vector<RowPart> received_parts, sent_parts;
    std::vector<std::pair<Tensor, Tensor>> rows = {};  // received and sent
  };
  [[nodiscard]] static Travel start_hop(Context& context, const Hop& hop);

  /// Neighbours to which rows go in a second hop: of a node, or with features of the same experts.
  [[nodiscard]] int num_inside() const {
    return nodes_ ? nodes_->ranks_per_node : features_ ? features_->num_places : 1;
  }

  // In two hops, or to all ranks (node_exchange.cpp).
  [[nodiscard]] Travel start_across(Context& context, const Hop& hop) const;
  [[nodiscard]] Travel dispatch_by_node(Context& context, const Round& round, std::span<const Matrices> all,
                                        const Room& room) const;
  [[nodiscard]] Travel give_back_by_node(Context& context, const Round& round, std::span<const Matrices> all,
                                         const Room& room) const;

  // Over ranks of features (feature_exchange.cpp).
  [[nodiscard]] Room take_room_of_features(Stack& workspace, std::span<const Matrices> all) const;
  [[nodiscard]] Travel dispatch_to_features(Context& context, const Round& round, std::span<const Matrices> all,
                                            const Room& room) const;
  [[nodiscard]] Travel give_back_from_features(Context& context, const Round& round, std::span<const Matrices> all,
                                               const Room& room) const;

  int num_ranks_, rank_, num_parts_;  // of all experts, `num_parts_` parts
  std::size_t mixture_row_;
  std::int64_t num_experts_, most_rows_, num_rows_;
  std::vector<double> shares_, kept_shares_;  // LayerOptions
  std::optional<NodeSizes> nodes_;
  std::optional<FeatureSizes> features_;
  NodeShares node_shares_, kept_node_shares_;
  std::vector<RowCounts> planned_, planned_kept_;
};

}  // namespace echelon
