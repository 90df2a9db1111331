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

/// The positions of `num_ranks` ranks, ascending.
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

}  // namespace

std::int64_t rows_of_ranks(const TokenLists& lists, std::int64_t seq_len, int num_ranks) {
  return num_ranks == 1 ? lists.rows() : num_ranks == lists.cp() ? seq_len : num_ranks * lists.rows();
}

void KeyBlocks::assign(const TokenLists& lists, const KeyExchange& exchange, int rank) {
  const int cp = lists.cp(), u = exchange.head_ranks, of_block = exchange.method == ContextMethod::all_gather ? cp : u;
  num_gathered_ = of_block;
  own_block_ = rank / of_block;
  queries_are_whole_ = u == cp;
  num_query_rows_ = rows_of_ranks(lists, num_tokens(lists), u);
  unite_positions(lists, rank / u * u, u, queries_);
  keys_.resize(static_cast<std::size_t>(cp / of_block));
  for (int block = 0; block < num_blocks(); ++block)
    unite_positions(lists, block * of_block, of_block, keys_[static_cast<std::size_t>(block)]);
  by_position_.clear();
  by_rank_.clear();
  if (num_gathered_ > 1) write_order(lists, own_block_ * of_block);
}

void KeyBlocks::write_order(const TokenLists& lists, int first_rank) {
  const std::int64_t T = num_tokens(lists), rows = lists.rows();
  row_of_position_.assign(static_cast<std::size_t>(T), -1);
  for (int i = 0; i < num_gathered_; ++i) {
    auto row = static_cast<std::int32_t>(i * rows);
    for (const std::int32_t position : lists.positions(first_rank + i))
      row_of_position_[static_cast<std::size_t>(position)] = row++;
  }
  by_position_.assign(static_cast<std::size_t>(rows_of_ranks(lists, T, num_gathered_)), -1);
  by_rank_.assign(static_cast<std::size_t>(num_gathered_ * rows), -1);
  std::int32_t place = 0;
  for (const std::int32_t position : keys_[static_cast<std::size_t>(own_block_)]) {
    const std::int32_t row = row_of_position_[static_cast<std::size_t>(position)];
    by_position_[static_cast<std::size_t>(place)] = row;
    by_rank_[static_cast<std::size_t>(row)] = place++;
  }
}

}  // namespace echelon
