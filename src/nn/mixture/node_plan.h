// Which rows an expert group exchanges in two hops, so that a token crosses to a node once, however many of its experts
// the node has. Letters: M nodes with L ranks each, P = M L; N tokens of a rank, k experts of a token, R = N k; S =
// min(k, M) N.
//
//     to the node     the rank at place l of a node sends each token once to the rank at place l of every node with an
//                     expert of it: S rows at most, ordered by node
//     inside          that rank copies a token for each of its experts on the node, ordered by expert, and sends the
//                     copies to the ranks of these: Q rows at most come to a rank
//
// Rows come back the same way, and copies of a token are summed at its node: one row comes back.
//
// With L = 1 every rank gets the tokens of all others, S = N, and its own experts' rows are copies of them. What ranks
// return is summed on the way, so neighbours may have features of the same experts.
//
// Every rank knows all choices. Token n travels in round n mod (number of rounds): as few rounds as fit, so that no
// rank has more than G tokens of others, X copies of them, or Q rows for its experts. One token of each rank always
// fits. So memory depends on these bounds alone.
#pragma once

#include "comm/comm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace echelon {

struct NodeSizes {
  int num_nodes = 1, ranks_per_node = 1, rank = 0;  // M, L, and the rank in the expert group: node L + place
  int ranks_of_features = 1;                        // neighbours with features of the same experts; above 1, L = 1
  std::int64_t num_tokens = 0, experts_per_token = 1, num_experts = 1;
  std::int64_t most_tokens = 1, most_copies = 1, most_rows = 1;  // G, X, Q

  [[nodiscard]] int num_ranks() const { return num_nodes * ranks_per_node; }
  [[nodiscard]] int node() const { return rank / ranks_per_node; }
  [[nodiscard]] int place() const { return rank % ranks_per_node; }
  [[nodiscard]] std::int64_t experts_per_node() const { return num_experts * ranks_of_features / num_nodes; }
  [[nodiscard]] std::int64_t experts_per_rank() const { return experts_per_node() / ranks_per_node; }
  /// The first expert of which this node, or this rank, has all or its features.
  [[nodiscard]] std::int64_t first_expert_of_node() const { return node() / ranks_of_features * experts_per_node(); }
  [[nodiscard]] std::int64_t first_expert_of_rank() const {
    return first_expert_of_node() + place() * experts_per_rank();
  }
  /// To every rank.
  [[nodiscard]] bool gives_all() const { return ranks_per_node == 1; }
  /// Parts of what a rank sends: one for each node, or one for all.
  [[nodiscard]] int num_parts() const { return gives_all() ? 1 : num_nodes; }
  /// S / N: parts that a token can be in.
  [[nodiscard]] std::int64_t parts_per_token() const { return std::min<std::int64_t>(experts_per_token, num_parts()); }
};

/// What is assumed before choices are known: the fraction of tokens with an expert on a node, and of rows at a rank, by
/// node and by rank of the group.
struct NodeShares {
  std::vector<double> tokens, rows;
};

/// Of one round: parts by node, and by place inside of the node.
struct NodeRound {
  std::vector<RowPart> sent_across, received_across, sent_inside, received_inside;
  std::int64_t num_tokens = 0, num_copies = 0, num_rows = 0;
  // Empty before choices are known. Where the copies of each token are [num_tokens, k], -1: none; where rows that
  // arrive are when they are ordered by expert [num_rows]; where each expert's start [E / P + 1].
  std::vector<std::int32_t> copies = {}, slots = {}, offsets = {};
};

class NodePlan {
 public:
  /// `choices`: int32 [L, M, N, k], of the rank at each place of each node the experts of its tokens, -1: none.
  NodePlan(const NodeSizes& sizes, std::vector<std::int32_t> choices, int least_rounds);
  NodePlan(const NodeSizes& sizes, NodeShares shares);

  [[nodiscard]] int num_rounds() const { return num_rounds_; }
  [[nodiscard]] const NodeRound& round(int index) const;
  /// Of the S rows those that this rank sends: the first ones.
  [[nodiscard]] std::int64_t num_sent() const;
  /// [N, S / N]: which of the S rows each token of this rank is in, -1: none.
  [[nodiscard]] std::vector<std::int32_t> sent_slots() const;

 private:
  struct Loads;
  [[nodiscard]] const std::int32_t* experts_of(int node, int place, std::int64_t token) const {
    return choices_.data() +
           ((std::int64_t{place} * sizes_.num_nodes + node) * sizes_.num_tokens + token) * sizes_.experts_per_token;
  }
  [[nodiscard]] bool goes_to(const std::int32_t* experts, int node) const;
  /// Tokens that are sent to each node, before choices are known.
  [[nodiscard]] std::vector<std::int64_t> planned_tokens() const;
  /// Of this many rounds, the largest load of any, as a fraction of what fits.
  [[nodiscard]] double highest_load(int num_rounds) const;
  [[nodiscard]] NodeRound planned_round(int index) const;
  [[nodiscard]] NodeRound chosen_round(int index) const;
  void add_copies(NodeRound& round, int index) const;
  void add_arrivals(NodeRound& round, int index) const;

  NodeSizes sizes_;
  std::vector<std::int32_t> choices_;
  NodeShares shares_;
  int num_rounds_ = 1;
  // A round is asked for several times, while the one before or after it is under way.
  mutable std::array<std::pair<int, NodeRound>, 2> last_ = {{{-1, {}}, {-1, {}}}};
};

/// The fraction of tokens with one of their k experts on a node with `share` of E experts, of which `num_groups` groups
/// have equally many and a token sees `num_seen`; each such choice is equally likely.
[[nodiscard]] double share_of_tokens(std::int64_t num_experts, std::int64_t num_nodes, std::int64_t experts_per_token,
                                     std::int64_t num_groups, std::int64_t num_seen);

}  // namespace echelon
