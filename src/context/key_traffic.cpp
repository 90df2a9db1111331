#include "context/key_traffic.h"

#include "context/key_blocks.h"
#include "context/key_ranges.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace echelon {

void share_pairs(std::span<std::int64_t> pairs, int head_ranks) {
  const auto num = static_cast<std::size_t>(head_ranks);
  for (std::size_t first = 0; first < pairs.size(); first += num) {
    const auto of_heads = pairs.subspan(first, num);
    std::fill(of_heads.begin(), of_heads.end(), std::accumulate(of_heads.begin(), of_heads.end(), std::int64_t{0}));
  }
}

void count_pairs(const TokenLists& lists, const Visibility& visibility, std::span<std::int64_t> pairs) {
  for (int rank = 0; rank < lists.cp(); ++rank) {
    const std::int32_t* next_document = visibility.documents.data() + 1;
    std::int32_t start = 0;
    std::int64_t sum = 0;
    for (const std::int32_t query : lists.positions(rank)) {
      while (*next_document <= query) start = *next_document++;
      const std::int64_t keys = query - start + 1;
      sum += visibility.window > 0 ? std::min(keys, visibility.window) : keys;
    }
    pairs[static_cast<std::size_t>(rank)] = sum;
  }
}

void KeyTraffic::add(RowRuns& sum, const RowRuns& rows) {
  unite(rows, sum, united_);
  std::swap(sum, united_);
}

void KeyTraffic::count(const TokenLists& lists, const Visibility& visibility, int ranks_of_block) {
  num_blocks_ = lists.cp() / ranks_of_block;
  const int n = num_blocks_;
  united_positions_.resize(ranks_of_block > 1 ? static_cast<std::size_t>(n) : 0);
  for (int block = 0; block < std::ssize(united_positions_); ++block)
    unite_positions(lists, block * ranks_of_block, ranks_of_block, united_positions_[static_cast<std::size_t>(block)]);
  seen_.assign(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0);
  ring_ = ring_gradients_ = seen_;
  rows_.resize(static_cast<std::size_t>(n));
  for (int source = 0; source < n; ++source) {
    sum_.clear();
    for (int hop = n - 1; hop >= 1; --hop) {
      const int destination = (source + hop) % n;
      const auto queries = positions(lists, destination);
      RowRuns& rows = rows_[static_cast<std::size_t>(hop)];
      begin_.resize(queries.size());
      end_.resize(queries.size());
      write_key_ranges({queries, positions(lists, source)}, visibility, {begin_, end_});
      find_seen_rows(begin_, end_, rows);
      add(sum_, rows);
      seen_[at(source, destination)] = num_rows(rows);
      ring_[at(source, hop)] = num_rows(sum_);
    }
    sum_.clear();
    for (int hop = 1; hop < n; ++hop) {
      add(sum_, rows_[static_cast<std::size_t>(hop)]);
      ring_gradients_[at(source, hop)] = num_rows(sum_);
    }
  }
}

}  // namespace echelon
