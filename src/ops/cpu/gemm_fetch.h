// Brings a block of a towards the second cache while the one before it is multiplied: every tile fetches a few lines, spread over its multiply-adds, because a
// burst would hold up the loads that the tile itself waits for.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <algorithm>

namespace echelon {

/// A block as runs of lines: along its rows if these are long, else along a column of lines.
class Fetch {
 public:
  static constexpr std::int64_t line = 64;  // bytes

  Fetch() = default;

  /// All of num_rows rows of row_bytes each, in num_tiles tiles.
  Fetch(const std::byte* from, std::int64_t row_stride_bytes, std::int64_t num_rows, std::int64_t row_bytes, std::int64_t num_tiles) : from_(from) {
    const std::int64_t lines_per_row = row_bytes / line + 1;  // wherever it begins
    const bool is_by_rows = lines_per_row > num_rows;
    num_runs_ = is_by_rows ? num_rows : lines_per_row;
    run_stride_ = is_by_rows ? row_stride_bytes : line;
    lines_per_run_ = is_by_rows ? lines_per_row : num_rows;
    step_ = is_by_rows ? line : row_stride_bytes;
    const std::int64_t pieces_per_run = std::max<std::int64_t>(1, num_tiles / std::max<std::int64_t>(num_runs_, 1));
    lines_at_once_ = (lines_per_run_ + pieces_per_run - 1) / pieces_per_run;
  }

  /// What the next tile fetches.
  [[nodiscard]] Lines next() {
    if (run_ >= num_runs_) return {};
    const Lines lines{from_ + run_ * run_stride_ + line_ * step_, std::min(lines_at_once_, lines_per_run_ - line_), step_};
    line_ += lines_at_once_;
    if (line_ >= lines_per_run_) {
      line_ = 0;
      ++run_;
    }
    return lines;
  }

 private:
  const std::byte* from_ = nullptr;
  std::int64_t num_runs_ = 0, run_stride_ = 0, lines_per_run_ = 0, step_ = 0, lines_at_once_ = 0;
  std::int64_t run_ = 0, line_ = 0;
};

}  // namespace echelon
