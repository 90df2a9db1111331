#include "ops/cpu/gemm.h"

#include "base/team.h"
#include "ops/cpu/convert.h"
#include "ops/cpu/gemm_agenda.h"
#include "ops/cpu/gemm_fetch.h"
#include "ops/cpu/gemm_grid.h"
#include "ops/cpu/gemm_splits.h"
#include "ops/cpu/huge_buffer.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

// Of b in a section, 8 MiB: in the last cache; threads are in two at a time.
constexpr std::int64_t packed_units = 1 << 21;
// Rows of c at a time, so that float32 sums of a c of 16 bits are bounded.
constexpr std::int64_t band = 4096;

/// Columns of b over some blocks of k, which are packed together.
struct Section {
  GemmRange columns, blocks;
  std::int64_t num_panels = 0, units = 0;  // of packed b
  std::int64_t buffer = 0;                 // where b is packed
};

class Multiplication {
 public:
  /// `most_threads` take part: num_threads of this thread's team, and those that others lend.
  Multiplication(const GemmKernels& kernels, const GemmProduct& product, int num_threads, std::int64_t most_threads)
      : kernels_(kernels),
        g_(product),
        depths_{product.k, kernels.per_unit, kernels.grain,
                parts_of(parts_of(product.k, kernels.per_unit), kernels.most_units)},
        num_groups_(parts_of(depths_.num_blocks, blocks_at_once())),
        num_column_blocks_(parts_of(
            g_.n, std::min(most_columns, packed_units / (blocks_at_once() * std::min(g_.k, kernels.most_units))))),
        num_threads_(num_threads),
        most_threads_(most_threads) {}

  void run() {
    for (std::int64_t i = 0; i < parts_of(g_.m, band); ++i) {
      rows_ = part(g_.m, parts_of(g_.m, band), i);
      multiply_band();
    }
  }

 private:
  [[nodiscard]] bool narrows() const { return is_half_dtype(g_.c_dtype); }
  [[nodiscard]] std::int64_t blocks_at_once() const {
    return narrows() || kernels_.keeps_blocks ? std::min(kernels_.most_blocks, depths_.num_blocks) : 1;
  }
  [[nodiscard]] bool keeps_sums() const { return narrows() && num_groups_ > 1; }
  [[nodiscard]] std::int64_t num_sections() const { return num_column_blocks_ * num_groups_; }

  [[nodiscard]] Section section(std::int64_t index) const {
    Section s;
    s.columns = part(g_.n, num_column_blocks_, index / num_groups_, kernels_.tile_columns);
    s.blocks = part(depths_.num_blocks, num_groups_, index % num_groups_);
    s.num_panels = parts_of(s.columns.size, kernels_.tile_columns);
    s.units = units_before(s, s.blocks.first + s.blocks.size - 1) + depths_.units(s.blocks.first + s.blocks.size - 1);
    s.buffer = index % num_buffers_;
    return s;
  }

  /// The threads claim the shares of all sections in one go.
  void multiply_band() {
    const GemmRowSplits cuts(rows_.size, kernels_, most_threads_);
    const std::int64_t fewest_panels =
        std::max<std::int64_t>(1, parts_of(g_.n, kernels_.tile_columns) / num_column_blocks_);
    GemmAgenda::Counts counts{.column_shares = std::min(most_threads_, fewest_panels),
                              .row_shares = cuts.row_shares(),
                              .late_shares = most_threads_ == 1 ? 0 : most_threads_};
    const std::int64_t at_once =
        std::max<std::int64_t>(1, Team::most_shares / (counts.column_shares + counts.row_shares));
    num_buffers_ = most_threads_ == 1 ? 1 : std::min<std::int64_t>(2, num_sections());
    allocate();
    for (std::int64_t first = 0; first < num_sections(); first += at_once) {
      counts.sections = std::min(at_once, num_sections() - first);
      multiply_sections(first, counts, cuts);
    }
  }

  void multiply_sections(std::int64_t first_section, const GemmAgenda::Counts& counts, const GemmRowSplits& cuts) {
    const GemmAgenda agenda(counts);
    GemmProgress progress(counts, num_buffers_);
    const auto rows_of = [&](const GemmAgenda::Share& share) {
      return share.is_of_columns ? cuts.first_rows() : cuts.rows_of(share.index);
    };
    const auto next = [&](std::int64_t position) {
      return position < agenda.size()
                 ? Next{rows_of(agenda[position]), section(first_section + agenda[position].section).blocks.first}
                 : Next{};
    };
    const std::int64_t threads_now = Team::num_threads_now(num_threads_);
    share_out(agenda.size(), [&](int position) {
      const GemmAgenda::Share share = agenda[position];
      const GemmProgress::End end(progress, share);
      progress.await(share);
      const Section s = section(first_section + share.section);
      const GemmRange panels =
          share.is_of_columns ? part(s.num_panels, counts.column_shares, share.index) : GemmRange{0, s.num_panels};
      // Most likely this thread's next.
      multiply_block(s, rows_of(share), panels, next(position + threads_now), share.is_of_columns);
    });
  }

  void allocate() {
    buffer_size_ = 0;
    std::int64_t most_panels = 0;
    for (std::int64_t index = 0; index < num_sections(); ++index) {
      const Section s = section(index);
      buffer_size_ = std::max(buffer_size_, s.num_panels * s.units * kernels_.tile_columns);
      most_panels = std::max(most_panels, s.num_panels);
    }
    packed_b_ = HugeBuffer::of_this_thread(HugeBuffer::shared).floats(num_buffers_ * buffer_size_);
    sums_stride_ = most_panels * kernels_.tile_columns;
    if (keeps_sums()) sums_ = HugeBuffer::of_this_thread(HugeBuffer::sums).floats(rows_.size * sums_stride_);
  }

  [[nodiscard]] float* packed_b(const Section& s) const { return packed_b_ + s.buffer * buffer_size_; }
  [[nodiscard]] std::int64_t units_before(const Section& s, std::int64_t block) const {
    return parts_of(depths_.numbers(block).first - depths_.numbers(s.blocks.first).first, kernels_.per_unit);
  }

  /// Where k is strided, in strips of few rows, over which all panels go, so that their pages and lines stay cached.
  template <class F>
  static void for_strips(GemmRange k, bool is_contiguous, F&& f) {
    if (is_contiguous) return f(k);
    for (std::int64_t l = 0; l < k.size; l += strip) f(GemmRange{k.first + l, std::min(strip, k.size - l)});
  }

  [[nodiscard]] GemmRange columns_of(const Section& s, std::int64_t panel) const {
    const std::int64_t first = panel * kernels_.tile_columns;
    return {s.columns.first + first, std::min<std::int64_t>(kernels_.tile_columns, s.columns.size - first)};
  }

  /// [panel][unit of the group][tile_columns]
  void pack_b_panel(const Section& s, std::int64_t panel, std::int64_t block) const {
    const GemmRange k = depths_.numbers(block), columns = columns_of(s, panel);
    const std::int64_t offset =
        g_.b.is_transposed ? columns.first * g_.b.stride + k.first : k.first * g_.b.stride + columns.first;
    const PackArgs args{.from = g_.b.data + offset * size_of(kernels_.dtype),
                        .stride = g_.b.stride,
                        .k = k.size,
                        .count = columns.size,
                        .into = packed_b(s) + (panel * s.units + units_before(s, block)) * kernels_.tile_columns};
    (g_.b.is_transposed ? kernels_.pack_b_columns : kernels_.pack_b_rows)(args);
  }

  template <class F>
  void share_out(std::int64_t num_shares, F&& f) const {
    if (most_threads_ > 1) return Team::of_this_thread(num_threads_).run(static_cast<int>(num_shares), f);
    for (int share = 0; share < num_shares; ++share) f(share);
  }

  /// The rows of a and the block of k that are needed next.
  struct Next {
    GemmRange rows;
    std::int64_t block = 0;
  };

  /// A block of c over the k of the group. The bounds are those of the band and of the packed panels.
  void multiply_block(const Section& s, GemmRange rows, GemmRange panels, Next after, bool packs_b) {
    const KernelsInUse in_use(kernels_);
    const std::int64_t width = panels.size * kernels_.tile_columns;
    const std::int64_t a_units = parts_of(rows.size, kernels_.tile_rows) * tile_units(),
                       tile = kernels_.tile_rows * kernels_.tile_columns;
    const bool has_own_sums = narrows() && !keeps_sums();
    float* packed_a =
        HugeBuffer::of_this_thread(HugeBuffer::own).floats(a_units + tile + (has_own_sums ? rows.size * width : 0));
    float* edge = packed_a + a_units;
    Block c{rows, panels, nullptr, 0, edge};
    if (has_own_sums) {
      c.sums = edge + tile;
      c.stride = width;
    } else if (keeps_sums()) {
      c.sums = sums_ + rows.first * sums_stride_ + panels.first * kernels_.tile_columns;
      c.stride = sums_stride_;
    } else {
      c.sums = reinterpret_cast<float*>(g_.c) + (rows_.first + rows.first) * g_.c_stride + s.columns.first +
               panels.first * kernels_.tile_columns;
      c.stride = g_.c_stride;
    }
    for (std::int64_t block = s.blocks.first; block < s.blocks.first + s.blocks.size; ++block) {
      pack_a(rows, block, packed_a);
      const bool is_last_block = block + 1 == s.blocks.first + s.blocks.size;
      multiply_panels(s, c, block, packed_a, is_last_block ? after : Next{rows, block + 1}, packs_b);
    }
    if (narrows() && s.blocks.first + s.blocks.size == depths_.num_blocks) round(s, c);
  }

  struct Block {
    GemmRange rows, panels;
    float* sums;
    std::int64_t stride;
    float* edge;
  };

  [[nodiscard]] std::int64_t tile_units() const {
    return a_is_by_k() ? kernels_.most_units * kernels_.panel_rows : kernels_.row_stride * kernels_.tile_rows;
  }
  [[nodiscard]] bool a_is_by_k() const { return g_.a.is_transposed && kernels_.panel_rows > 0; }

  /// A part of a factor: its k by its rows of a or columns of b.
  [[nodiscard]] Fetch fetch(const Factor& factor, bool is_k_contiguous, GemmRange k, GemmRange others,
                            std::int64_t num_tiles) const {
    const GemmRange rows = is_k_contiguous ? others : k, columns = is_k_contiguous ? k : others;
    const std::int64_t size = size_of(kernels_.dtype), stride = factor.stride * size;
    return {factor.data + rows.first * stride + columns.first * size, stride, rows.size, columns.size * size,
            num_tiles};
  }
  [[nodiscard]] Fetch fetch_a(const Next& next, std::int64_t num_tiles) const {
    if (next.rows.size == 0) return {};
    return fetch(g_.a, !g_.a.is_transposed, depths_.numbers(next.block),
                 {rows_.first + next.rows.first, next.rows.size}, num_tiles);
  }
  [[nodiscard]] Fetch fetch_b(const Section& s, std::int64_t panel, std::int64_t block, std::int64_t num_tiles) const {
    return fetch(g_.b, g_.b.is_transposed, depths_.numbers(block), columns_of(s, panel), num_tiles);
  }

  void pack_a(GemmRange rows, std::int64_t block, float* into) const {
    const GemmRange whole = depths_.numbers(block);
    const GemmTileRows tiles(rows.size, kernels_);
    for_strips(whole, !g_.a.is_transposed, [&](GemmRange k) {
      const std::int64_t unit = (k.first - whole.first) / kernels_.per_unit;
      for (std::int64_t index = 0; index < tiles.size(); ++index) {
        const GemmRange tile = tiles[index];
        const std::int64_t row = rows_.first + rows.first + tile.first;
        const std::int64_t offset = g_.a.is_transposed ? k.first * g_.a.stride + row : row * g_.a.stride + k.first;
        const PackArgs args{.from = g_.a.data + offset * size_of(kernels_.dtype),
                            .stride = g_.a.stride,
                            .k = k.size,
                            .count = tile.size,
                            .into = into + index * tile_units() + unit * (a_is_by_k() ? kernels_.panel_rows : 1)};
        (g_.a.is_transposed ? kernels_.pack_a_columns : kernels_.pack_a_rows)(args);
      }
    });
  }

  void multiply_panels(const Section& s, const Block& c, std::int64_t block, const float* packed_a, const Next& next,
                       bool packs_b) {
    const GemmTileRows tiles(c.rows.size, kernels_);
    const std::int64_t width = kernels_.tile_columns, num_tiles = tiles.size();
    const std::int64_t last_panel = c.panels.first + c.panels.size - 1;
    Fetch soon = fetch_a(next, c.panels.size * num_tiles);
    const bool adds = block > 0 || (g_.accumulates && !narrows());
    for (std::int64_t panel = c.panels.first; panel <= last_panel; ++panel) {
      const std::int64_t column = (panel - c.panels.first) * width,
                         valid = std::min(width, s.columns.size - panel * width);
      if (packs_b) {
        pack_b_panel(s, panel, block);
        soon = panel == last_panel ? fetch_a(next, num_tiles) : fetch_b(s, panel + 1, block, num_tiles);
      }
      const bool is_edge = valid < width && !narrows();  // sums of their own have room for whole tiles
      for (std::int64_t index = 0; index < num_tiles; ++index) {
        const GemmRange tile = tiles[index];
        float* into = c.sums + tile.first * c.stride + column;
        float* next_c = index + 1 < num_tiles ? into + tile.size * c.stride : c.sums + column + width;
        if (is_edge && adds) copy_edge({tile.size, valid}, into, c.stride, c.edge, width);
        kernels_.multiply({.a = packed_a + index * tile_units(),
                           .b = packed_b(s) + (panel * s.units + units_before(s, block)) * width,
                           .c = is_edge ? c.edge : into,
                           .depth = depths_.units(block),
                           .ldc = is_edge ? width : c.stride,
                           .rows = static_cast<int>(tile.size),
                           .adds = adds,
                           .is_by_k = a_is_by_k(),
                           .soon = soon.next(),
                           .next_c = next_c});
        if (is_edge) copy_edge({tile.size, valid}, c.edge, width, into, c.stride);
      }
    }
  }

  struct Edge {
    std::int64_t rows, columns;
  };
  static void copy_edge(Edge edge, const float* from, std::int64_t from_stride, float* into, std::int64_t into_stride) {
    for (std::int64_t i = 0; i < edge.rows; ++i)
      std::copy_n(from + i * from_stride, edge.columns, into + i * into_stride);
  }

  void round(const Section& s, const Block& c) const {
    const std::int64_t width = kernels_.tile_columns, column = c.panels.first * width;
    const std::int64_t valid = std::min(s.columns.size - column, c.panels.size * width);
    const std::int64_t first = (rows_.first + c.rows.first) * g_.c_stride + s.columns.first + column;
    for (std::int64_t i = 0; i < c.rows.size; ++i)
      narrow({c.sums + i * c.stride, g_.c + (first + i * g_.c_stride) * size_of(g_.c_dtype), g_.c_dtype, valid,
              g_.accumulates});
  }

  const GemmKernels& kernels_;
  const GemmProduct& g_;
  const GemmDepths depths_;
  const std::int64_t num_groups_, num_column_blocks_;
  const int num_threads_;
  const std::int64_t most_threads_;
  GemmRange rows_;  // of the band
  std::int64_t num_buffers_ = 1, buffer_size_ = 0, sums_stride_ = 0;
  float *packed_b_ = nullptr, *sums_ = nullptr;
};

const std::byte* place_in(const Factor& factor, DType dtype, std::int64_t row, std::int64_t column) {
  if (factor.is_transposed) std::swap(row, column);
  return factor.data + (row * factor.stride + column) * size_of(dtype);
}

GemmProduct part_of(const GemmProduct& whole, DType dtype, GemmRange rows, GemmRange columns) {
  GemmProduct g = whole;
  g.a.data = place_in(whole.a, dtype, rows.first, 0);
  g.b.data = place_in(whole.b, dtype, 0, columns.first);
  g.c = whole.c + (rows.first * whole.c_stride + columns.first) * size_of(whole.c_dtype);
  g.m = rows.size;
  g.n = columns.size;
  return g;
}

}  // namespace

void multiply(const GemmKernels& kernels, const GemmProduct& product, int num_threads) {
  const bool is_small = product.m * product.n * product.k < (std::int64_t{1} << 20);
  const std::int64_t threads = is_small ? 1 : Team::most_threads(num_threads);
  const GemmGrid grid(product.m, product.n, kernels, threads);
  if (grid.size() == 1) return Multiplication(kernels, product, num_threads, threads).run();
  const auto multiply_part = [&](int index) {
    Multiplication(kernels, part_of(product, kernels.dtype, grid.rows(index), grid.columns(index)), 1, 1).run();
  };
  Team::of_this_thread(num_threads).run(grid.size(), multiply_part);
}

}  // namespace echelon
