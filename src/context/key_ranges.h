// What the queries of one rank see of the keys of another (or of its own): with both in ascending order of positions it
// is one range of rows for each query, whichever way the sequence is split. Documents, head and tail, stripes, hops of
// a ring and sliding windows are all described by it.
//
//   query i sees rows [begin[i], end[i]) of the keys; neither decreases with i; a range may be empty
#pragma once

#include "context/documents.h"

#include <cstdint>
#include <span>

namespace echelon {

/// Positions in the sequence, ascending, without padding.
struct QueriesAndKeys {
  std::span<const std::int32_t> queries;
  std::span<const std::int32_t> keys;
};

/// int32 [T_r] each: as many entries as there are rows of queries, padding included.
struct KeyRanges {
  std::span<std::int32_t> begin;
  std::span<std::int32_t> end;
};

/// Overwrites `ranges`. Padding queries, the last rows, see nothing: their range is empty at the last end. Padding of
/// the keys is never seen. Linear time, no allocation.
void write_key_ranges(const QueriesAndKeys& rows, const Visibility& visibility, KeyRanges ranges);

/// Pairs (query, key) of the ranges: the sum of their lengths.
[[nodiscard]] std::int64_t num_pairs(std::span<const std::int32_t> begin, std::span<const std::int32_t> end);

}  // namespace echelon
