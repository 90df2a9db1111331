// What a plan knows of the tokens of one rank of a cp group: sizes, without a list of positions, since a search for a
// layout asks for those of long sequences thousands of times. Where documents decide which tokens a rank holds, the
// pairs are those of a sequence that is one document.
#pragma once

#include "context/key_blocks.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

struct RankTokens {
  int cp = 1, rank = 0;  // of the group
  TokenSplit split;
  KeyExchange exchange;
  std::int64_t rows = 0;  // T_r
  KeyBlockSizes blocks;
  /// Pairs (query, key) of the queries and of each block of keys, under the causal mask and each window: int64
  /// [windows, blocks], of one head and one sequence. Documents leave fewer.
  std::vector<std::int64_t> pairs;

  /// How many places before this rank's block in the ring block `source` is.
  [[nodiscard]] int distance_of(int source) const {
    return (blocks.own_block() - source + blocks.num_blocks()) % blocks.num_blocks();
  }
  [[nodiscard]] int source_at(int distance) const { return distance_of(distance); }
};

/// `windows` as in Visibility. Throws Error as TokenLists::assign does.
[[nodiscard]] RankTokens rank_tokens(const TokenSplit& split, const KeyExchange& exchange, int rank,
                                     std::span<const std::int64_t> windows);

}  // namespace echelon
