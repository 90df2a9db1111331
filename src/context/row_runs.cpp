#include "context/row_runs.h"

#include <algorithm>

namespace echelon {
namespace {

/// `run` starts at or after the start of the last run.
void append(RowRun run, RowRuns& rows) {
  if (run.first == run.end) return;
  if (!rows.empty() && run.first <= rows.back().end)
    rows.back().end = std::max(rows.back().end, run.end);
  else
    rows.push_back(run);
}

}  // namespace

void find_seen_rows(std::span<const std::int32_t> begin, std::span<const std::int32_t> end, RowRuns& rows) {
  rows.clear();
  for (std::size_t i = 0; i < begin.size(); ++i) append({begin[i], end[i]}, rows);
}

void unite(std::span<const RowRun> a, std::span<const RowRun> b, RowRuns& rows) {
  rows.clear();
  while (!a.empty() || !b.empty()) {
    std::span<const RowRun>& lower = b.empty() || (!a.empty() && a.front().first <= b.front().first) ? a : b;
    append(lower.front(), rows);
    lower = lower.subspan(1);
  }
}

std::int64_t num_rows(std::span<const RowRun> rows) {
  std::int64_t sum = 0;
  for (const RowRun& run : rows) sum += run.end - run.first;
  return sum;
}

}  // namespace echelon
