#include "context/key_ranges.h"

#include <algorithm>
#include <cassert>

namespace echelon {

void write_key_ranges(const QueriesAndKeys& rows, const Visibility& visibility, KeyRanges ranges) {
  assert(ranges.begin.size() == ranges.end.size() && ranges.begin.size() >= rows.queries.size());
  const auto num_keys = static_cast<std::int32_t>(rows.keys.size());
  const std::int32_t* keys = rows.keys.data();
  const std::int32_t* next_document = visibility.documents.data() + 1;
  std::int32_t document = 0, begin = 0, end = 0;
  std::size_t i = 0;
  for (const std::int32_t query : rows.queries) {
    while (*next_document <= query) document = *next_document++;
    std::int64_t first = document;
    if (visibility.window > 0) first = std::max(first, query - visibility.window + 1);
    while (begin < num_keys && keys[begin] < first) ++begin;
    end = std::max(end, begin);
    while (end < num_keys && keys[end] <= query) ++end;
    ranges.begin[i] = begin;
    ranges.end[i++] = end;
  }
  std::fill(ranges.begin.begin() + static_cast<std::ptrdiff_t>(i), ranges.begin.end(), end);
  std::fill(ranges.end.begin() + static_cast<std::ptrdiff_t>(i), ranges.end.end(), end);
}

std::int64_t num_pairs(std::span<const std::int32_t> begin, std::span<const std::int32_t> end) {
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) pairs += end[i] - begin[i];
  return pairs;
}

}  // namespace echelon
