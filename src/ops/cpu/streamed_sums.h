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
    packed_ =
        HugeBuffer::of_this_thread(HugeBuffer::own).floats(units_ * (g_.n + tiles_at_once * call_.kernels.panel_rows));
    a_ = packed_ + units_ * g_.n;
    for (std::int64_t column = 0; column < g_.n; column += width)
      call_.streamed.pack_rows({.from = g_.b.data + column * call_.value,
                                .stride = g_.b.stride,
                                .k = g_.k,
                                .count = width,
                                .into = packed_ + column * units_});
    const std::int64_t end = rows.first + rows.size;
    for (std::int64_t first = rows.first; first < end; first += rows_at_once)
      multiply_rows({first, std::min(rows_at_once, end - first)});
  }

 private:
  // Tiles that use a panel while the first cache holds it.
  static constexpr std::int64_t tiles_at_once = 4, rows_at_once = tiles_at_once * StreamedKernels::most_rows;

  void multiply_rows(GemmRange rows) const {
    const std::int64_t width = call_.panel_columns(), num_panels = g_.n / width,
                       num_tiles = parts_of(rows.size, StreamedKernels::most_rows),
                       a_units = units_ * call_.kernels.panel_rows;
    for (std::int64_t index = 0; index < num_tiles; ++index) {
      const GemmRange tile = streamed_tile(rows.size, index);
      call_.kernels.pack_a_columns({.from = g_.a.data + (rows.first + tile.first) * call_.value,
                                    .stride = g_.a.stride,
                                    .k = g_.k,
                                    .count = tile.size,
                                    .into = a_ + index * a_units});
    }
    StreamedTile t{.streamed = Streamed::c,
                   .a_stride = call_.kernels.panel_rows,
                   .c_stride = g_.c_stride,
                   .depth = units_,
                   .vectors = call_.streamed.most_vectors,
                   .adds = true};
    // Panels whose tiles take some thousand cycles.
    const std::int64_t ahead = std::max<std::int64_t>(1, 256 / (units_ * num_tiles));
    for (std::int64_t panel = 0; panel < num_panels; ++panel) {
      const std::int64_t later = panel + ahead;
      for (std::int64_t index = 0; index < num_tiles; ++index) {
        const GemmRange tile = streamed_tile(rows.size, index);
        const std::int64_t row = rows.first + tile.first;
        t.a = a_ + index * a_units;
        t.b = packed_ + panel * width * units_;
        t.c = place_of(row, panel * width);
        t.rows = static_cast<int>(tile.size);
        t.later_c = place_of(later < num_panels ? row : row + rows.size, later % num_panels * width);
        call_.streamed.multiply(t);
      }
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
