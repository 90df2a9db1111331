// Sets of rows of one rank's keys: those that the queries of other ranks see, and so those that are sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Rows [first, end).
struct RowRun {
  std::int32_t first = 0, end = 0;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

/// Ascending; there is a row between two runs.
using RowRuns = std::vector<RowRun>;

/// The rows of all ranges (KeyRanges). Overwrites `rows`; linear.
void find_seen_rows(std::span<const std::int32_t> begin, std::span<const std::int32_t> end, RowRuns& rows);

/// The rows of a or b; linear. Overwrites `rows`, which is neither of them.
void unite(std::span<const RowRun> a, std::span<const RowRun> b, RowRuns& rows);

[[nodiscard]] std::int64_t num_rows(std::span<const RowRun> rows);

}  // namespace echelon
