#include "context/rank_tokens.h"

#include "context/key_ranges.h"

namespace echelon {

RankTokens rank_tokens(const TokenSplit& split, int rank) {
  RankTokens tokens = {.cp = split.cp, .rank = rank, .split = split, .lists = {}, .pairs = {}};
  const DocumentOffsets whole = {0, static_cast<std::int32_t>(split.seq_len)};
  tokens.lists.assign(split, whole);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(tokens.lists.rows())), end(begin.size());
  for (int source = 0; source < split.cp; ++source) {
    write_key_ranges({tokens.lists.positions(rank), tokens.lists.positions(source)}, {whole, split.window},
                     {begin, end});
    tokens.pairs.push_back(num_pairs(begin, end));
  }
  return tokens;
}

}  // namespace echelon
