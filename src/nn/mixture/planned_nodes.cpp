// What is planned of an exchange in two hops before choices are known.
#include "nn/mixture/node_plan.h"
#include "nn/mixture/row_parts.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

/// Part `index` of `count` things in `num_parts` parts, which differ by one at most.
std::int64_t even_part(std::int64_t count, std::int64_t num_parts, std::int64_t index) {
  return count * (index + 1) / num_parts - count * index / num_parts;
}
std::int64_t scaled(double share, std::int64_t count) { return std::llround(share * static_cast<double>(count)); }

/// n over k.
double ways_to_choose(std::int64_t n, std::int64_t k) {
  if (k < 0 || k > n) return 0;
  double ways = 1;
  for (std::int64_t i = 0; i < k; ++i) ways *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return ways;
}

/// That none of k different ones of `all` is one of `some`.
double misses(std::int64_t all, std::int64_t some, std::int64_t k) {
  double chance = 1;
  for (std::int64_t i = 0; i < k; ++i)
    chance *= std::max(0.0, static_cast<double>(all - some - i) / static_cast<double>(all - i));
  return chance;
}

}  // namespace

double share_of_tokens(std::int64_t num_experts, std::int64_t num_nodes, std::int64_t experts_per_token,
                       std::int64_t num_groups, std::int64_t num_seen) {
  const std::int64_t of_node = num_experts / num_nodes;
  const bool is_limited = num_seen < num_groups && num_groups % num_nodes == 0;
  if (!is_limited) return 1 - misses(num_experts, of_node, experts_per_token);
  const std::int64_t on_node = num_groups / num_nodes, of_group = num_experts / num_groups;
  double missed = 0;
  for (std::int64_t seen = 0; seen <= std::min(num_seen, on_node); ++seen)
    missed += ways_to_choose(on_node, seen) * ways_to_choose(num_groups - on_node, num_seen - seen) /
              ways_to_choose(num_groups, num_seen) * misses(num_seen * of_group, seen * of_group, experts_per_token);
  return 1 - missed;
}

NodePlan::NodePlan(const NodeSizes& sizes, NodeShares shares) : sizes_(sizes), shares_(std::move(shares)) {
  const std::int64_t rows = sizes.num_tokens * sizes.experts_per_token;
  double of_node = 0;
  for (int node = 0; node < sizes.num_nodes; ++node) {
    double here = 0;
    for (int place = 0; place < sizes.ranks_per_node; ++place) {
      const int rank = node * sizes.ranks_per_node + place;
      here += shares_.rows[static_cast<std::size_t>(rank)];
    }
    of_node = std::max(of_node, here);
  }
  const double most_tokens = *std::ranges::max_element(shares_.tokens),
               most_rows = *std::ranges::max_element(shares_.rows);
  const auto rounds = [](std::int64_t count, std::int64_t most) { return static_cast<int>((count + most - 1) / most); };
  num_rounds_ = std::max({1, rounds(scaled(most_tokens, sizes.num_nodes * sizes.num_tokens), sizes.most_tokens),
                          rounds(scaled(of_node, sizes.num_nodes * rows), sizes.most_copies),
                          rounds(scaled(most_rows, sizes.num_ranks() * rows), sizes.most_rows)});
  // None without a row: of few tokens all that there are, since one of each rank fits.
  num_rounds_ =
      static_cast<int>(std::min<std::int64_t>(num_rounds_, planned_tokens()[static_cast<std::size_t>(sizes.node())]));
}

// One at least, as far as there is room: to this rank's own node first, of which it receives as many from every node.
std::vector<std::int64_t> NodePlan::planned_tokens() const {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(sizes_.num_nodes), sizes_.num_tokens);
  if (sizes_.gives_all()) return tokens;
  std::int64_t room = sizes_.num_tokens * sizes_.parts_per_token();
  for (int i = 0; i < sizes_.num_nodes; ++i) {
    const auto node = static_cast<std::size_t>((sizes_.node() + i) % sizes_.num_nodes);
    const std::int64_t wanted = std::max<std::int64_t>(1, scaled(shares_.tokens[node], sizes_.num_tokens));
    room -= tokens[node] = std::min(wanted, room);
  }
  return tokens;
}

// All ranks send the same to the nodes, as far as shares say, so what a rank receives is what it sends to its own.
NodeRound NodePlan::planned_round(int index) const {
  const int M = sizes_.num_nodes, L = sizes_.ranks_per_node;
  const auto of_round = [&](std::int64_t count) { return even_part(count, num_rounds_, index); };
  NodeRound round;
  std::int64_t first = 0;
  for (const std::int64_t tokens : planned_tokens()) {
    round.sent_across.push_back({first + tokens * index / num_rounds_, of_round(tokens)});
    if (!sizes_.gives_all()) first += tokens;
  }
  const std::int64_t own = round.sent_across[static_cast<std::size_t>(sizes_.node())].count;
  round.received_across = in_a_row(std::vector(static_cast<std::size_t>(M), own), sizes_.most_tokens);
  round.num_tokens = sum_of(round.received_across);
  const std::int64_t rows = M * sizes_.num_tokens * sizes_.experts_per_token;
  std::vector<std::int64_t> sent, received;
  for (int place = 0; place < L; ++place) {
    const auto from = [&](int source, int target) {
      const int rank = sizes_.node() * L + target;
      const double share = shares_.rows[static_cast<std::size_t>(rank)];
      return even_part(of_round(scaled(share * L, rows)), L, (source + target) % L);
    };
    sent.push_back(from(sizes_.place(), place));
    received.push_back(from(place, sizes_.place()));
  }
  round.sent_inside = in_a_row(sent, std::min(sizes_.most_copies, round.num_tokens * sizes_.experts_per_token));
  round.num_copies = sum_of(round.sent_inside);
  round.received_inside = in_a_row(received, sizes_.most_rows);
  round.num_rows = sum_of(round.received_inside);
  return round;
}

}  // namespace echelon
