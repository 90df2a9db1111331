// What one rank of a cp group holds of every sequence, where documents do not decide it.
#pragma once

#include "context/token_lists.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

struct RankTokens {
  int cp = 1, rank = 0;  // of the group
  TokenLists lists;
  /// Pairs (query, key) of this rank's queries and the keys of each rank, under the causal mask and each window: int64
  /// [windows, cp], of one head and one sequence. Documents leave fewer.
  std::vector<std::int64_t> pairs;

  /// How many ranks before this one in the ring rank `source` is.
  [[nodiscard]] int distance_of(int source) const { return (rank - source + cp) % cp; }
  [[nodiscard]] int source_at(int distance) const { return (rank - distance + cp) % cp; }
};

/// `windows` as in Visibility. Throws Error as TokenLists::assign does, and for a balancer that reads documents.
[[nodiscard]] RankTokens rank_tokens(const TokenSplit& split, int rank, std::span<const std::int64_t> windows);

}  // namespace echelon
