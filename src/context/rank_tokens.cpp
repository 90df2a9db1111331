#include "context/rank_tokens.h"

#include "base/error.h"
#include "context/key_ranges.h"

namespace echelon {

RankTokens rank_tokens(const TokenSplit& split, int rank, std::span<const std::int64_t> windows) {
  require(!reads_documents(split.balancer), "the token lists of '{}' depend on documents", name_of(split.balancer));
  RankTokens tokens = {.cp = split.cp, .rank = rank, .lists = {}, .pairs = {}};
  tokens.lists.assign(split);
  const DocumentOffsets whole = {0, static_cast<std::int32_t>(split.seq_len)};
  std::vector<std::int32_t> begin(static_cast<std::size_t>(tokens.lists.rows())), end(begin.size());
  for (const std::int64_t window : windows)
    for (int source = 0; source < split.cp; ++source) {
      write_key_ranges({tokens.lists.positions(rank), tokens.lists.positions(source)}, {whole, window}, {begin, end});
      tokens.pairs.push_back(num_pairs(begin, end));
    }
  return tokens;
}

}  // namespace echelon
