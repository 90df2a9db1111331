// Prefetches what is packed next into the L2 cache while tiles are multiplied. Every tile prefetches a few lines,
// spread over its multiply-adds, because a burst would delay the loads of the tile itself.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <algorithm>

namespace echelon {

/// The lines of num_rows rows of row_bytes each, in equal shares for num_tiles tiles.
class Fetch {
 public:
  Fetch() = default;
  Fetch(const std::byte* from, std::int64_t row_stride_bytes, std::int64_t num_rows, std::int64_t row_bytes,
        std::int64_t num_tiles) {
    constexpr std::int64_t line = 64;
    // Wherever a row starts.
    lines_ = {.row = from,
              .row_stride = row_stride_bytes,
              .per_row = static_cast<std::uint32_t>((row_bytes + 2 * line - 2) / line)};
    num_left_ = static_cast<std::uint32_t>(num_rows) * lines_.per_row;
    at_once_ = static_cast<std::uint32_t>((num_left_ + num_tiles - 1) / num_tiles);
    rows_at_once_ = at_once_ / lines_.per_row;
    columns_at_once_ = at_once_ % lines_.per_row;
  }

  /// What the next tile fetches.
  [[nodiscard]] Lines next() {
    const Lines lines{.row = lines_.row,
                      .row_stride = lines_.row_stride,
                      .column = lines_.column,
                      .per_row = lines_.per_row,
                      .count = std::min(at_once_, num_left_)};
    num_left_ -= lines.count;
    lines_.row += rows_at_once_ * lines_.row_stride;
    lines_.column += columns_at_once_;
    if (lines_.column >= lines_.per_row) {
      lines_.column -= lines_.per_row;
      lines_.row += lines_.row_stride;
    }
    return lines;
  }

 private:
  Lines lines_;
  std::uint32_t num_left_ = 0, at_once_ = 0, rows_at_once_ = 0, columns_at_once_ = 0;
};

}  // namespace echelon
