// What a plan knows of the tokens of one rank of a cp group: those that it holds of every sequence, or, where documents
// decide, those of a sequence that is one document, which has as many rows.
#pragma once

#include "context/token_lists.h"

#include <cstdint>
#include <vector>

namespace echelon {

struct RankTokens {
  int cp = 1, rank = 0;  // of the group
  TokenSplit split;
  TokenLists lists;
  /// Pairs (query, key) of this rank's queries and the keys of each rank, under the causal mask alone: int64 [cp], of
  /// one head and one sequence. Documents leave fewer.
  std::vector<std::int64_t> pairs;

  /// How many ranks before this one in the ring rank `source` is.
  [[nodiscard]] int distance_of(int source) const { return (rank - source + cp) % cp; }
  [[nodiscard]] int source_at(int distance) const { return (rank - distance + cp) % cp; }
};

/// Throws Error as TokenLists::assign does.
[[nodiscard]] RankTokens rank_tokens(const TokenSplit& split, int rank);

}  // namespace echelon
