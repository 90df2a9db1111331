// The forward product of a layer: the rows of its weights are streamed.
#pragma once

#include "ops/cpu/convert.h"
#include "ops/cpu/huge_buffer.h"
#include "ops/cpu/streamed_product.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace echelon {

/// c = a b^T: b is streamed. Its rows are those of tiles, and a's rows, which are packed, their columns: c is computed
/// transposed, some of its columns at a time.
class StreamedByRows {
 public:
  explicit StreamedByRows(const StreamedProduct& call) : call_(call), g_(call.g) {
    const std::int64_t half = call_.streamed.half_lanes, lanes = call_.streamed.lanes,
                       most = call_.streamed.most_vectors;
    std::int64_t row = 0;
    const auto add = [&](std::int64_t vectors, bool is_half) {
      panels_.push_back({row, static_cast<int>(vectors), is_half});
      row += vectors * (is_half ? half : lanes);
    };
    if (half > 0 && g_.m <= most * half) {
      add(parts_of(g_.m, half), true);
    } else {
      const bool has_half = half > 0 && (g_.m - 1) % lanes < half;
      const std::int64_t vectors = has_half ? g_.m / lanes : parts_of(g_.m, lanes), panels = parts_of(vectors, most);
      for (std::int64_t i = 0; i < panels; ++i) add(part(vectors, panels, i).size, false);
      if (has_half) add(1, true);
    }
    width_ = row;
    const Panel& panel = panels_.front();
    if (std::ssize(panels_) == 1 && panel.is_half && panel.vectors <= 2) tile_rows_ = call_.streamed.narrow_rows;
  }

  void multiply(GemmRange columns) {
    all_units_ = 0;
    for (std::int64_t block = 0; block < call_.depths.num_blocks; ++block) all_units_ += call_.depths.units(block);
    packed_ = HugeBuffer::of_this_thread(HugeBuffer::own).floats(all_units_ * width_);
    sums_ = HugeBuffer::of_this_thread(HugeBuffer::sums)
                .floats(columns_at_once * width_ + g_.m * columns_at_once + tile_rows_ * call_.kernels.row_stride);
    into_ = sums_ + columns_at_once * width_;
    rows_ = into_ + g_.m * columns_at_once;
    pack();
    const std::int64_t end = columns.first + columns.size;
    for (std::int64_t first = columns.first; first < end; first += columns_at_once)
      multiply_columns({first, std::min(columns_at_once, end - first)});
  }

 private:
  static constexpr std::int64_t columns_at_once = 48;

  struct Panel {
    std::int64_t row = 0;
    int vectors = 0;
    bool is_half = false;
  };
  [[nodiscard]] std::int64_t lanes_of(const Panel& panel) const {
    return panel.is_half ? call_.streamed.half_lanes : call_.streamed.lanes;
  }

  /// A block after the other, and of each the panels.
  void pack() const {
    float* into = packed_;
    for (std::int64_t block = 0; block < call_.depths.num_blocks; ++block) {
      const GemmRange k = call_.depths.numbers(block);
      for (const Panel& panel : panels_) {
        const std::int64_t width = panel.vectors * lanes_of(panel);
        const auto& packings = panel.is_half ? call_.streamed.pack_half_columns : call_.streamed.pack_columns;
        packings.at(static_cast<std::size_t>(panel.vectors))(
            {.from = g_.a.data + (panel.row * g_.a.stride + k.first) * call_.value,
             .stride = g_.a.stride,
             .k = k.size,
             .count = std::min(width, g_.m - panel.row),
             .into = into});
        into += call_.depths.units(block) * width;
      }
    }
  }

  void multiply_columns(GemmRange columns) const {
    const std::int64_t num_tiles = parts_of(columns.size, tile_rows_);
    for (std::int64_t index = 0; index < num_tiles; ++index) {
      const GemmRange tile = streamed_tile(columns.size, index, tile_rows_);
      float* b = packed_;
      for (std::int64_t block = 0; block < call_.depths.num_blocks; ++block) {
        const std::int64_t units = call_.depths.units(block);
        StreamedTile t{.depth = units, .rows = static_cast<int>(tile.size), .adds = block > 0};
        take_rows(columns.first + tile.first, block, t);
        for (const Panel& panel : panels_) {
          t.b = b;
          t.vectors = panel.vectors;
          t.is_half = panel.is_half;
          t.c = sums_ + tile.first * width_ + panel.row;
          t.c_stride = width_;
          call_.streamed.multiply(t);
          b += units * panel.vectors * lanes_of(panel);
        }
      }
    }
    write(columns);
  }

  /// Rows of b as units.
  void take_rows(std::int64_t row, std::int64_t block, StreamedTile& t) const {
    const GemmRange k = call_.depths.numbers(block);
    const std::byte* from = g_.b.data + (row * g_.b.stride + k.first) * call_.value;
    t.a = reinterpret_cast<const float*>(from);
    t.a_stride = g_.b.stride / call_.kernels.per_unit;
    if (call_.streamed.reads_rows) return;
    call_.kernels.pack_a_rows({.from = from, .stride = g_.b.stride, .k = k.size, .count = t.rows, .into = rows_});
    t.a = rows_;
    t.a_stride = call_.kernels.row_stride;
  }

  void write(GemmRange columns) const {
    std::byte* c = g_.c + columns.first * size_of(g_.c_dtype);
    const bool is_whole = !is_half_dtype(g_.c_dtype);
    float* into = is_whole ? reinterpret_cast<float*>(c) : into_;
    const std::int64_t stride = is_whole ? g_.c_stride : columns_at_once;
    transpose({.from = sums_,
               .from_stride = width_,
               .rows = columns.size,
               .columns = g_.m,
               .into = into,
               .into_stride = stride});
    if (is_whole) return;
    for (std::int64_t i = 0; i < g_.m; ++i) {
      std::byte* row = c + i * g_.c_stride * size_of(g_.c_dtype);
      const float* sums = into_ + i * columns_at_once;
      narrow({sums, row, g_.c_dtype, columns.size, g_.accumulates});
    }
  }

  const StreamedProduct& call_;
  const GemmProduct& g_;
  std::vector<Panel> panels_;
  std::int64_t width_ = 0, all_units_ = 0;  // of all panels
  int tile_rows_ = StreamedKernels::most_rows;
  float *packed_ = nullptr, *sums_ = nullptr, *into_ = nullptr, *rows_ = nullptr;
};

}  // namespace echelon
