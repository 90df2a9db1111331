// The gradient of a layer's weights: the sums are streamed.
#pragma once

#include "ops/cpu/huge_buffer.h"
#include "ops/cpu/streamed_product.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

/// c += a^T b of few rows: c is streamed, some of its rows at a time.
class StreamedSums {
 public:
  explicit StreamedSums(const StreamedProduct& call) : call_(call), g_(call.g) {}

  void multiply(GemmRange rows) {
    units_ = call_.depths.units(0);
    const std::int64_t width = call_.panel_columns();
    packed_ = HugeBuffer::of_this_thread(HugeBuffer::own).floats(units_ * (g_.n + call_.kernels.panel_rows));
    a_ = packed_ + units_ * g_.n;
    for (std::int64_t column = 0; column < g_.n; column += width)
      call_.streamed.pack_rows({.from = g_.b.data + column * call_.value,
                                .stride = g_.b.stride,
                                .k = g_.k,
                                .count = width,
                                .into = packed_ + column * units_});
    const std::int64_t end = rows.first + rows.size, at_once = call_.kernels.panel_rows / most_rows * most_rows;
    for (std::int64_t first = rows.first; first < end; first += at_once)
      multiply_panel({first, std::min(at_once, end - first)});
  }

 private:
  static constexpr std::int64_t most_rows = StreamedKernels::most_rows;
  static constexpr std::int64_t units_ahead = 256;  // of tiles, until one's sums are in the second cache

  void multiply_panel(GemmRange rows) const {
    call_.kernels.pack_a_columns({.from = g_.a.data + rows.first * call_.value,
                                  .stride = g_.a.stride,
                                  .k = g_.k,
                                  .count = rows.size,
                                  .into = a_});
    for (std::int64_t first = 0; first < rows.size; first += most_rows)
      multiply_rows({rows.first + first, std::min(most_rows, rows.size - first)}, a_ + first);
  }

  /// Row by row of tiles, since c is read faster in the order of its memory.
  void multiply_rows(GemmRange rows, const float* a) const {
    StreamedTile t{.streamed = Streamed::c,
                   .a = a,
                   .a_stride = call_.kernels.panel_rows,
                   .c_stride = g_.c_stride,
                   .depth = units_,
                   .rows = static_cast<int>(rows.size),
                   .vectors = call_.streamed.most_vectors,
                   .adds = true};
    const std::int64_t width = call_.panel_columns(), num_panels = g_.n / width,
                       ahead = std::max<std::int64_t>(1, units_ahead / units_);
    for (std::int64_t panel = 0; panel < num_panels; ++panel) {
      const std::int64_t later = panel + ahead;
      t.b = packed_ + panel * width * units_;
      t.c = place_of(rows.first, panel * width);
      t.later_c = place_of(later < num_panels ? rows.first : rows.first + rows.size, later % num_panels * width);
      call_.streamed.multiply(t);
    }
  }

  [[nodiscard]] float* place_of(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<float*>(g_.c) + row * g_.c_stride + column;
  }

  const StreamedProduct& call_;
  const GemmProduct& g_;
  std::int64_t units_ = 0;
  float *packed_ = nullptr, *a_ = nullptr;
};

}  // namespace echelon
