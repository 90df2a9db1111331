#include "context/rank_tokens.h"

#include "base/error.h"
#include "context/key_ranges.h"

namespace echelon {

RankTokens rank_tokens(const TokenSplit& split, const KeyExchange& exchange, int rank) {
  require(!reads_documents(split.balancer), "the token lists of '{}' depend on documents", name_of(split.balancer));
  RankTokens tokens = {.cp = split.cp, .rank = rank, .exchange = exchange, .lists = {}, .blocks = {}, .pairs = {}};
  tokens.lists.assign(split);
  tokens.blocks.assign(tokens.lists, exchange, rank);
  const DocumentOffsets whole = {0, static_cast<std::int32_t>(split.seq_len)};
  std::vector<std::int32_t> begin(static_cast<std::size_t>(tokens.blocks.num_query_rows())), end(begin.size());
  for (int source = 0; source < tokens.blocks.num_blocks(); ++source) {
    write_key_ranges({tokens.blocks.queries(), tokens.blocks.keys(source)}, {whole, split.window}, {begin, end});
    tokens.pairs.push_back(num_pairs(begin, end));
  }
  return tokens;
}

}  // namespace echelon
