#include "context/rank_tokens.h"

#include "base/error.h"
#include "context/key_ranges.h"

namespace echelon {
namespace {

/// From the lists themselves.
std::vector<std::int64_t> pairs_of_lists(const TokenSplit& split, const KeyExchange& exchange, int rank,
                                         std::int64_t window) {
  const DocumentOffsets whole = {0, static_cast<std::int32_t>(split.seq_len)};
  TokenLists lists;
  lists.assign(split, whole);
  KeyBlocks blocks;
  blocks.assign(split, lists, exchange, rank);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(blocks.num_query_rows())), end(begin.size());
  std::vector<std::int64_t> pairs;
  for (int source = 0; source < blocks.num_blocks(); ++source) {
    write_key_ranges({blocks.queries(), blocks.keys(lists, source)}, {whole, window}, {begin, end});
    pairs.push_back(num_pairs(begin, end));
  }
  return pairs;
}

}  // namespace

RankTokens rank_tokens(const TokenSplit& split, const KeyExchange& exchange, int rank,
                       std::span<const std::int64_t> windows) {
  require_lists(split);
  RankTokens tokens = {.cp = split.cp,
                       .rank = rank,
                       .split = split,
                       .exchange = exchange,
                       .rows = rows_per_rank(split),
                       .blocks = KeyBlockSizes(split, exchange, rank),
                       .pairs = {}};
  const int u = exchange.head_ranks;
  for (const std::int64_t window : windows) {
    const std::vector<std::int64_t> pairs =
        window > 0 ? pairs_of_lists(split, exchange, rank, window)
                   : causal_pairs_of_blocks(split, rank / u * u, u, tokens.blocks.ranks_of_block());
    tokens.pairs.insert(tokens.pairs.end(), pairs.begin(), pairs.end());
  }
  return tokens;
}

}  // namespace echelon
