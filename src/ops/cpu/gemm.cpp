#include "ops/cpu/gemm.h"

#include "base/team.h"
#include "ops/cpu/convert.h"
#include "ops/cpu/gemm_fetch.h"
#include "ops/cpu/huge_buffer.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t packed_units = 1 << 21;               // of b at a time, 8 MiB: in the last cache
constexpr std::int64_t most_columns = 1024, most_tiles = 8;  // of a block of c, most_tiles in its rows: its part of a stays in the second
constexpr std::int64_t most_blocks = 4;                      // of k, packed of b together, where sums are kept elsewhere than in c
constexpr std::int64_t band = 4096;                          // rows of c at a time, so that float32 sums of a c of 16 bits are bounded

std::int64_t parts_of(std::int64_t size, std::int64_t most) { return (size + most - 1) / most; }

/// [first, first + size) is part `index` of num_parts nearly equal ones, in multiples of `grain` but for the last.
struct Range {
  std::int64_t first = 0, size = 0;
};
Range part(std::int64_t size, std::int64_t num_parts, std::int64_t index, std::int64_t grain = 1) {
  const std::int64_t grains = parts_of(size, grain);
  const std::int64_t first = grains * index / num_parts * grain, last = std::min(size, grains * (index + 1) / num_parts * grain);
  return {first, last - first};
}

/// Blocks of k: cut by k alone, since every number's bits depend on them.
struct Depths {
  std::int64_t k = 0, per_unit = 1, num_blocks = 0;

  [[nodiscard]] Range numbers(std::int64_t block) const { return part(k, num_blocks, block, per_unit); }
  [[nodiscard]] std::int64_t units(std::int64_t block) const { return parts_of(numbers(block).size, per_unit); }
};

class Multiplication {
 public:
  Multiplication(const GemmKernels& kernels, const GemmProduct& product, int num_threads)
      : kernels_(kernels),
        g_(product),
        depths_{product.k, kernels.per_unit, parts_of(parts_of(product.k, kernels.per_unit), max_depth)},
        num_threads_(num_threads) {}

  void run() {
    for (std::int64_t i = 0; i < parts_of(g_.m, band); ++i) {
      rows_ = part(g_.m, parts_of(g_.m, band), i);
      const std::int64_t num_columns = std::min(most_columns, packed_units / (blocks_at_once() * std::min(g_.k, max_depth)));
      const std::int64_t num_blocks = parts_of(g_.n, num_columns);
      for (std::int64_t j = 0; j < num_blocks; ++j) {
        columns_ = part(g_.n, num_blocks, j, kernels_.tile_columns);
        if (columns_.size > 0) multiply_columns();
      }
    }
  }

 private:
  [[nodiscard]] bool narrows() const { return is_half_dtype(g_.c_dtype); }
  [[nodiscard]] std::int64_t blocks_at_once() const { return narrows() ? std::min(most_blocks, depths_.num_blocks) : 1; }

  /// All rows of the band by the columns at hand.
  void multiply_columns() {
    num_panels_ = parts_of(columns_.size, kernels_.tile_columns);
    const std::int64_t num_groups = parts_of(depths_.num_blocks, blocks_at_once());
    sums_stride_ = num_panels_ * kernels_.tile_columns;
    for (std::int64_t group = 0; group < num_groups; ++group) {
      blocks_ = part(depths_.num_blocks, num_groups, group);
      is_last_ = group + 1 == num_groups;
      keeps_sums_ = narrows() && num_groups > 1;
      if (keeps_sums_) sums_ = HugeBuffer::of_this_thread(HugeBuffer::sums).floats(rows_.size * sums_stride_);
      packed_b_ = HugeBuffer::of_this_thread(HugeBuffer::shared).floats(group_units() * sums_stride_);
      multiply_rows();
    }
  }

  [[nodiscard]] std::int64_t units_before(std::int64_t block) const {
    return parts_of(depths_.numbers(block).first - depths_.numbers(blocks_.first).first, kernels_.per_unit);
  }
  [[nodiscard]] std::int64_t group_units() const { return units_before(blocks_.first + blocks_.size - 1) + depths_.units(blocks_.first + blocks_.size - 1); }

  /// Where k is strided, in strips of few rows, over which all panels go: their pages and lines stay at hand.
  template <class F>
  static void for_strips(Range k, bool is_contiguous, F&& f) {
    if (is_contiguous) return f(k);
    for (std::int64_t l = 0; l < k.size; l += strip) f(Range{k.first + l, std::min(strip, k.size - l)});
  }

  [[nodiscard]] Range columns_of(std::int64_t panel) const {
    const std::int64_t first = panel * kernels_.tile_columns;
    return {columns_.first + first, std::min<std::int64_t>(kernels_.tile_columns, columns_.size - first)};
  }

  /// [panel][unit of the group][tile_columns]
  void pack_b_panel(std::int64_t panel, std::int64_t block) {
    const Range k = depths_.numbers(block), columns = columns_of(panel);
    const std::int64_t offset = g_.b.is_transposed ? columns.first * g_.b.stride + k.first : k.first * g_.b.stride + columns.first;
    const PackArgs args{.from = g_.b.data + offset * size_of(kernels_.dtype),
                        .stride = g_.b.stride,
                        .k = k.size,
                        .count = columns.size,
                        .into = packed_b_ + (panel * group_units() + units_before(block)) * kernels_.tile_columns};
    (g_.b.is_transposed ? kernels_.pack_b_columns : kernels_.pack_b_rows)(args);
  }

  /// First the threads share the columns, over the first block of rows, and pack each panel of b just before it is multiplied; then they share the other rows.
  void multiply_rows() {
    const bool is_small = rows_.size * columns_.size * g_.k < (std::int64_t{1} << 20);
    const std::int64_t threads = is_small ? 1 : Team::most_threads(num_threads_), threads_now = Team::num_threads_now(num_threads_);
    const std::int64_t column_shares = std::min(threads, num_panels_);
    const std::int64_t num_blocks = parts_of(rows_.size, most_tiles * kernels_.tile_rows);
    const std::int64_t row_shares = num_blocks == 1 ? 0 : std::min(parts_of(num_blocks - 1, threads) * threads, rows_.size / kernels_.tile_rows - 1);
    const auto rows_of = [&](std::int64_t share) { return part(rows_.size, row_shares + 1, share); };
    share_out(column_shares, threads, [&](int share) {
      const Next next{share < row_shares ? rows_of(1 + share) : Range{}, blocks_.first};
      multiply_block(rows_of(0), part(num_panels_, column_shares, share), next, true);
    });
    share_out(row_shares, threads, [&](int share) {
      const std::int64_t later = share + threads_now, next_block = blocks_.first + blocks_.size;  // most likely this thread's next
      const Next next = later < row_shares ? Next{rows_of(1 + later), blocks_.first} : next_block < depths_.num_blocks ? Next{rows_of(0), next_block} : Next{};
      multiply_block(rows_of(1 + share), {0, num_panels_}, next, false);
    });
  }

  template <class F>
  void share_out(std::int64_t num_shares, std::int64_t threads, F&& f) const {
    if (threads > 1) return Team::of_this_thread(num_threads_).run(static_cast<int>(num_shares), f);
    for (int share = 0; share < num_shares; ++share) f(share);
  }

  /// Rows of a and the block of k that are wanted next.
  struct Next {
    Range rows;
    std::int64_t block = 0;
  };

  /// A block of c over the k of the group. The bounds are those of the band and of the packed panels.
  void multiply_block(Range rows, Range panels, Next after, bool packs_b) {
    const std::int64_t width = panels.size * kernels_.tile_columns;
    const std::int64_t a_units = parts_of(rows.size, kernels_.tile_rows) * tile_units(), tile = kernels_.tile_rows * kernels_.tile_columns;
    const bool has_own_sums = narrows() && !keeps_sums_;
    float* packed_a = HugeBuffer::of_this_thread(HugeBuffer::own).floats(a_units + tile + (has_own_sums ? rows.size * width : 0));
    float* edge = packed_a + a_units;
    Block c{rows, panels, nullptr, 0, edge};
    if (has_own_sums) {
      c.sums = edge + tile;
      c.stride = width;
    } else if (keeps_sums_) {
      c.sums = sums_ + rows.first * sums_stride_ + panels.first * kernels_.tile_columns;
      c.stride = sums_stride_;
    } else {
      c.sums = reinterpret_cast<float*>(g_.c) + (rows_.first + rows.first) * g_.n + columns_.first + panels.first * kernels_.tile_columns;
      c.stride = g_.n;
    }
    for (std::int64_t block = blocks_.first; block < blocks_.first + blocks_.size; ++block) {
      pack_a(rows, block, packed_a);
      const bool is_last_block = block + 1 == blocks_.first + blocks_.size;
      multiply_panels(c, block, packed_a, is_last_block ? after : Next{rows, block + 1}, packs_b);
    }
    if (narrows() && is_last_) round(c);
  }

  struct Block {
    Range rows, panels;
    float* sums;
    std::int64_t stride;
    float* edge;
  };

  [[nodiscard]] std::int64_t tile_units() const { return g_.a.is_transposed ? max_depth * kernels_.panel_rows : row_stride * kernels_.tile_rows; }
  [[nodiscard]] std::int64_t num_tiles(Range rows) const { return parts_of(rows.size, kernels_.tile_rows); }

  /// A part of a factor: its k by its rows of a or columns of b.
  [[nodiscard]] Fetch fetch(const Factor& factor, bool is_k_contiguous, Range k, Range others, std::int64_t num_tiles) const {
    const Range rows = is_k_contiguous ? others : k, columns = is_k_contiguous ? k : others;
    const std::int64_t size = size_of(kernels_.dtype), stride = factor.stride * size;
    return {factor.data + rows.first * stride + columns.first * size, stride, rows.size, columns.size * size, num_tiles};
  }
  [[nodiscard]] Fetch fetch_a(const Next& next, std::int64_t num_tiles) const {
    if (next.rows.size == 0) return {};
    return fetch(g_.a, !g_.a.is_transposed, depths_.numbers(next.block), {rows_.first + next.rows.first, next.rows.size}, num_tiles);
  }
  [[nodiscard]] Fetch fetch_b(std::int64_t panel, std::int64_t block, std::int64_t num_tiles) const {
    return fetch(g_.b, g_.b.is_transposed, depths_.numbers(block), columns_of(panel), num_tiles);
  }

  void pack_a(Range rows, std::int64_t block, float* into) const {
    const Range whole = depths_.numbers(block);
    for_strips(whole, !g_.a.is_transposed, [&](Range k) {
      const std::int64_t unit = (k.first - whole.first) / kernels_.per_unit;
      for (std::int64_t index = 0; index < num_tiles(rows); ++index) {
        const Range tile = part(rows.size, num_tiles(rows), index);
        const std::int64_t row = rows_.first + rows.first + tile.first;
        const std::int64_t offset = g_.a.is_transposed ? k.first * g_.a.stride + row : row * g_.a.stride + k.first;
        const PackArgs args{.from = g_.a.data + offset * size_of(kernels_.dtype),
                            .stride = g_.a.stride,
                            .k = k.size,
                            .count = tile.size,
                            .into = into + index * tile_units() + unit * kernels_.panel_rows};
        (g_.a.is_transposed ? kernels_.pack_a_columns : kernels_.pack_a_rows)(args);
      }
    });
  }

  void multiply_panels(const Block& c, std::int64_t block, const float* packed_a, const Next& next, bool packs_b) {
    const std::int64_t width = kernels_.tile_columns;
    const std::int64_t last_panel = c.panels.first + c.panels.size - 1;
    Fetch soon = fetch_a(next, c.panels.size * num_tiles(c.rows));
    const bool adds = block > 0 || (g_.accumulates && !narrows());
    for (std::int64_t panel = c.panels.first; panel <= last_panel; ++panel) {
      const std::int64_t column = (panel - c.panels.first) * width, valid = std::min(width, columns_.size - panel * width);
      if (packs_b) {
        pack_b_panel(panel, block);
        soon = panel == last_panel ? fetch_a(next, num_tiles(c.rows)) : fetch_b(panel + 1, block, num_tiles(c.rows));
      }
      const bool is_edge = valid < width && !narrows();  // sums of their own have room for whole tiles
      for (std::int64_t index = 0; index < num_tiles(c.rows); ++index) {
        const Range tile = part(c.rows.size, num_tiles(c.rows), index);
        float* into = c.sums + tile.first * c.stride + column;
        kernels_.multiply({.a = packed_a + index * tile_units(),
                           .b = packed_b_ + (panel * group_units() + units_before(block)) * width,
                           .c = is_edge ? c.edge : into,
                           .depth = depths_.units(block),
                           .ldc = is_edge ? width : c.stride,
                           .rows = static_cast<int>(tile.size),
                           .adds = adds && !is_edge,
                           .is_by_k = g_.a.is_transposed,
                           .soon = soon.next()});
        if (!is_edge) continue;
        for (std::int64_t i = 0; i < tile.size; ++i)
          for (std::int64_t j = 0; j < valid; ++j) into[i * c.stride + j] = (adds ? into[i * c.stride + j] : 0.0F) + c.edge[i * width + j];
      }
    }
  }

  void round(const Block& c) const {
    const std::int64_t width = kernels_.tile_columns, column = c.panels.first * width;
    const std::int64_t valid = std::min(columns_.size - column, c.panels.size * width);
    const std::int64_t first = (rows_.first + c.rows.first) * g_.n + columns_.first + column;
    for (std::int64_t i = 0; i < c.rows.size; ++i)
      narrow({c.sums + i * c.stride, g_.c + (first + i * g_.n) * size_of(g_.c_dtype), g_.c_dtype, valid, g_.accumulates});
  }

  const GemmKernels& kernels_;
  const GemmProduct& g_;
  const Depths depths_;
  const int num_threads_;
  Range rows_, columns_, blocks_;  // of the band, of the panels that are packed, of k's blocks that are packed
  std::int64_t num_panels_ = 0, sums_stride_ = 0;
  bool is_last_ = true, keeps_sums_ = false;
  float *packed_b_ = nullptr, *sums_ = nullptr;
};

}  // namespace

void multiply(const GemmKernels& kernels, const GemmProduct& product, int num_threads) { Multiplication(kernels, product, num_threads).run(); }

}  // namespace echelon
