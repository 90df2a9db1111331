#include "context/key_blocks.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

std::int64_t num_tokens(const TokenLists& lists) {
  std::int64_t tokens = 0;
  for (int rank = 0; rank < lists.cp(); ++rank) tokens += std::ssize(lists.positions(rank));
  return tokens;
}

/// Rows of `num_ranks` ranks in ascending order: T if they are all.
std::int64_t rows_of_ranks(const TokenSplit& split, int num_ranks) {
  return num_ranks == split.cp && num_ranks > 1 ? split.seq_len : num_ranks * rows_per_rank(split);
}

}  // namespace

void unite_positions(const TokenLists& lists, int first_rank, int num_ranks, std::vector<std::int32_t>& positions) {
  positions.clear();
  if (num_ranks == lists.cp()) {
    positions.resize(static_cast<std::size_t>(num_tokens(lists)));
    std::iota(positions.begin(), positions.end(), 0);
    return;
  }
  for (int rank = first_rank; rank < first_rank + num_ranks; ++rank) {
    const auto middle = std::ssize(positions);
    const std::span<const std::int32_t> more = lists.positions(rank);
    positions.insert(positions.end(), more.begin(), more.end());
    std::inplace_merge(positions.begin(), positions.begin() + middle, positions.end());
  }
}

KeyBlockSizes::KeyBlockSizes(const TokenSplit& split, const KeyExchange& exchange, int rank)
    : ranks_of_block_(exchange.method == ContextMethod::all_gather ? split.cp : exchange.head_ranks),
      queries_are_whole_(exchange.head_ranks == split.cp),
      num_query_rows_(rows_of_ranks(split, exchange.head_ranks)) {
  num_blocks_ = split.cp / ranks_of_block_;
  own_block_ = rank / ranks_of_block_;
  num_gathered_rows_ = ranks_of_block_ > 1 ? rows_of_ranks(split, ranks_of_block_) : 0;
}

void KeyBlocks::assign(const TokenSplit& split, const TokenLists& lists, const KeyExchange& exchange, int rank) {
  KeyBlockSizes::operator=(KeyBlockSizes(split, exchange, rank));
  const int u = exchange.head_ranks;
  unite_positions(lists, rank / u * u, u, queries_);
  by_position_.clear();
  by_rank_.clear();
  keys_.resize(ranks_of_block() > 1 ? static_cast<std::size_t>(num_blocks()) : 0);
  for (int block = 0; block < std::ssize(keys_); ++block)
    unite_positions(lists, block * ranks_of_block(), ranks_of_block(), keys_[static_cast<std::size_t>(block)]);
  if (ranks_of_block() > 1) write_order(lists, own_block() * ranks_of_block());
}

void KeyBlocks::write_order(const TokenLists& lists, int first_rank) {
  const std::int64_t T = num_tokens(lists), rows = lists.rows();
  row_of_position_.assign(static_cast<std::size_t>(T), -1);
  for (int i = 0; i < ranks_of_block(); ++i) {
    auto row = static_cast<std::int32_t>(i * rows);
    for (const std::int32_t position : lists.positions(first_rank + i))
      row_of_position_[static_cast<std::size_t>(position)] = row++;
  }
  by_position_.assign(static_cast<std::size_t>(num_gathered_rows()), -1);
  by_rank_.assign(static_cast<std::size_t>(ranks_of_block() * rows), -1);
  std::int32_t place = 0;
  for (const std::int32_t position : keys_[static_cast<std::size_t>(own_block())]) {
    const std::int32_t row = row_of_position_[static_cast<std::size_t>(position)];
    by_position_[static_cast<std::size_t>(place)] = row;
    by_rank_[static_cast<std::size_t>(row)] = place++;
  }
}

}  // namespace echelon
