// The gradient of a layer's inputs: its weights are streamed along k.
#pragma once

#include "ops/cpu/convert.h"
#include "ops/cpu/huge_buffer.h"
#include "ops/cpu/streamed_product.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace echelon {

/// c = a b: b is streamed, some of its rows at a time, so that the second cache holds them and the next ones, which are
/// prefetched as they follow each other. Either one tile has all rows of a, or the first one packs b for the others.
class StreamedAlongK {
 public:
  /// next_b: what this thread streams next, most likely.
  StreamedAlongK(const StreamedProduct& call, const std::byte* next_b)
      : call_(call), g_(call.g), next_b_(next_b), is_lone_(g_.m <= call.streamed.lone_rows) {}

  void multiply(GemmRange columns) {
    const std::int64_t end = columns.first + columns.size;
    const bool is_narrow = is_half_dtype(g_.c_dtype), copies = !call_.streamed.reads_rows;
    const std::int64_t panel = call_.panel_columns() * units_at_once(), chunk = g_.m * a_chunk_stride;
    packed_ = HugeBuffer::of_this_thread(HugeBuffer::own).floats(panel + chunk + (copies ? g_.m * g_.k : 0));
    a_chunk_ = packed_ + panel;
    partial_ = HugeBuffer::of_this_thread(HugeBuffer::sums).floats((is_narrow ? 2 : 1) * g_.m * columns_at_once());
    a_ = reinterpret_cast<const float*>(g_.a.data);
    a_stride_ = g_.a.stride / call_.kernels.per_unit;
    if (copies) copy_rows(a_chunk_ + chunk);
    for (std::int64_t first = columns.first; first < end; first += columns_at_once()) {
      const GemmRange now = {first, std::min(columns_at_once(), end - first)};
      sums_ = is_narrow ? partial_ + g_.m * columns_at_once() : reinterpret_cast<float*>(g_.c) + first;
      sums_stride_ = is_narrow ? columns_at_once() : g_.c_stride;
      multiply_columns(now, {now.first + now.size, std::min(columns_at_once(), end - now.first - now.size)});
      for (std::int64_t i = 0; is_narrow && i < g_.m; ++i)
        narrow({sums_ + i * sums_stride_, g_.c + (i * g_.c_stride + first) * size_of(g_.c_dtype), g_.c_dtype, now.size,
                g_.accumulates});
    }
  }

 private:
  // Of b at once, for the second cache. Packed panels are of the first cache, too.
  [[nodiscard]] std::int64_t columns_at_once() const { return is_lone_ ? 256 : 512; }
  [[nodiscard]] std::int64_t units_at_once() const { return is_lone_ ? lone_units : 64; }
  static constexpr std::int64_t lone_units = 128, a_chunk_stride = StreamedKernels::lone_stride;
  static_assert(a_chunk_stride == lone_units + 16);

  void copy_rows(float* into) {
    for (std::int64_t i = 0; i < g_.m; ++i)
      call_.kernels.pack_a_rows({.from = g_.a.data + i * g_.a.stride * call_.value,
                                 .stride = g_.a.stride,
                                 .k = g_.k,
                                 .count = 1,
                                 .into = into + i * g_.k});
    a_ = into;
    a_stride_ = g_.k;
  }

  struct Chunk {
    std::int64_t first = 0, size = 0;  // units
    bool starts = false, ends = false;
    bool is_first_block = false;
  };

  void multiply_columns(GemmRange columns, GemmRange next_columns) const {
    for (std::int64_t block = 0; block < call_.depths.num_blocks; ++block) {
      const std::int64_t first_unit = call_.depths.numbers(block).first / call_.kernels.per_unit,
                         units = call_.depths.units(block), num_chunks = parts_of(units, units_at_once());
      for (std::int64_t i = 0; i < num_chunks; ++i) {
        const GemmRange now = part(units, num_chunks, i);
        const bool ends = i + 1 == num_chunks;
        const std::int64_t next = first_unit + now.first + now.size, all = call_.units(g_.k);
        const bool has_more = next < all;
        const std::byte* then = next_columns.size > 0 ? place_of(0, next_columns.first) : next_b_;
        const LinesAhead ahead = lines_ahead(has_more ? place_of(next, columns.first) : then,
                                             has_more || next_columns.size <= 0 ? columns.size : next_columns.size,
                                             std::min(units_at_once(), has_more ? all - next : all), now.size);
        multiply_chunk(columns, {first_unit + now.first, now.size, i == 0, ends, block == 0}, ahead);
      }
    }
  }

  [[nodiscard]] std::int64_t num_tiles() const { return is_lone_ ? 1 : parts_of(g_.m, StreamedKernels::most_rows); }
  [[nodiscard]] std::int64_t tile_columns() const { return is_lone_ ? call_.streamed.lanes : call_.panel_columns(); }

  /// Units of b's rows.
  [[nodiscard]] const std::byte* place_of(std::int64_t unit, std::int64_t column) const {
    return g_.b.data + (unit * call_.kernels.per_unit * g_.b.stride + column) * call_.value;
  }
  /// For the tiles of a chunk of `depth` units.
  [[nodiscard]] LinesAhead lines_ahead(const std::byte* from, std::int64_t columns, std::int64_t units,
                                       std::int64_t depth) const {
    if (from == nullptr) return {};
    constexpr std::int64_t line = 64;
    const std::int64_t row_bytes = columns * call_.value, rows = units * call_.kernels.per_unit,
                       tiles = columns / tile_columns() * num_tiles(),
                       bursts = tiles * parts_of(depth, StreamedKernels::burst_units);
    const auto per_row = static_cast<std::uint32_t>(row_bytes / line), all = static_cast<std::uint32_t>(rows) * per_row;
    return {.next = from,
            .row_skip = g_.b.stride * call_.value - row_bytes,
            .per_row = per_row,
            .per_burst = static_cast<std::uint32_t>(parts_of(all, bursts)),
            .left_in_row = per_row,
            .left = all};
  }

  void multiply_chunk(GemmRange columns, const Chunk& chunk, LinesAhead ahead) const {
    StreamedTile t{.b = packed_,
                   .source_stride = g_.b.stride,
                   .depth = chunk.size,
                   .vectors = is_lone_ ? 1 : call_.streamed.most_vectors,
                   .adds = chunk.ends && (!chunk.is_first_block || (g_.accumulates && !is_half_dtype(g_.c_dtype))),
                   .ahead = &ahead};
    // Rows that are a multiple of a page apart would share a set of the first cache.
    for (std::int64_t i = 0; i < g_.m; ++i)
      std::copy_n(a_ + i * a_stride_ + chunk.first, chunk.size, a_chunk_ + i * a_chunk_stride);
    for (std::int64_t column = 0; column < columns.size; column += tile_columns())
      for (std::int64_t index = 0; index < num_tiles(); ++index) {
        const GemmRange tile = part(g_.m, num_tiles(), index);
        t.a = a_chunk_ + tile.first * a_chunk_stride;
        t.a_stride = a_chunk_stride;
        t.streamed = is_lone_ ? Streamed::lone_b : index == 0 ? Streamed::b : Streamed::packed_b;
        t.source = place_of(chunk.first, columns.first + column);
        t.rows = static_cast<int>(tile.size);
        float* partial = partial_ + tile.first * columns_at_once() + column;
        t.start = chunk.starts ? nullptr : partial;
        t.start_stride = columns_at_once();
        t.c = chunk.ends ? sums_ + tile.first * sums_stride_ + column : partial;
        t.c_stride = chunk.ends ? sums_stride_ : columns_at_once();
        call_.streamed.multiply(t);
      }
  }

  const StreamedProduct& call_;
  const GemmProduct& g_;
  const std::byte* next_b_;
  bool is_lone_;
  const float* a_ = nullptr;
  std::int64_t a_stride_ = 0;
  float *packed_ = nullptr, *a_chunk_ = nullptr, *partial_ = nullptr, *sums_ = nullptr;
  std::int64_t sums_stride_ = 0;
};

}  // namespace echelon
