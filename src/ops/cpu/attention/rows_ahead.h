// Prefetches the rows that a thread will need next, a few at a time while it multiplies, so that they are in the L2
// cache in time. All at once they would delay the loads of the multiplication.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace echelon {

class RowsAhead {
 public:
  /// Drops the rows that were not prefetched yet.
  void clear() { *this = {}; }

  /// `count` rows of `width` values, `stride` values apart. At most eight times.
  template <class T>
  void add(const T* first, std::int64_t count, std::int64_t stride, std::int64_t width) {
    if (count <= 0) return;
    assert(num_ranges_ < ranges_.size());
    constexpr std::int64_t size = sizeof(T);
    ranges_[num_ranges_++] = {reinterpret_cast<const std::byte*>(first), count, stride * size, width * size};
    num_rows_ += count;
  }

  /// Spreads the prefetches over this many steps.
  void divide(std::int64_t num_steps) {
    rows_per_step_ = (num_rows_ + num_steps - 1) / std::max<std::int64_t>(num_steps, 1);
  }

  void step() {
    for (std::int64_t n = 0; n < rows_per_step_ && range_ < num_ranges_; ++n) {
      Range& range = ranges_[range_];
      constexpr std::int64_t line_bytes = 64;
      for (std::int64_t byte = 0; byte < range.width; byte += line_bytes) __builtin_prefetch(range.row + byte, 0, 3);
      range.row += range.stride;
      if (--range.count == 0) ++range_;
    }
  }

 private:
  struct Range {
    const std::byte* row;
    std::int64_t count, stride, width;  // of bytes
  };
  std::array<Range, 8> ranges_{};
  std::size_t num_ranges_ = 0, range_ = 0;
  std::int64_t num_rows_ = 0, rows_per_step_ = 0;
};

}  // namespace echelon
