#include "context/key_traffic.h"

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

void KeyTraffic::count(const TokenLists& lists, const Visibility& visibility) {
  cp_ = lists.cp();
  seen_.assign(static_cast<std::size_t>(cp_) * static_cast<std::size_t>(cp_), 0);
  ring_ = seen_;
  for (int source = 0; source < cp_; ++source) {
    later_.clear();
    for (int hop = cp_ - 1; hop >= 1; --hop) {
      const int destination = (source + hop) % cp_;
      const auto queries = lists.positions(destination);
      begin_.resize(queries.size());
      end_.resize(queries.size());
      write_key_ranges({queries, lists.positions(source)}, visibility, {begin_, end_});
      find_seen_rows(begin_, end_, rows_);
      unite(rows_, later_, united_);
      std::swap(later_, united_);
      seen_[at(source, destination)] = num_rows(rows_);
      ring_[at(source, hop)] = num_rows(later_);
    }
  }
}

}  // namespace echelon
