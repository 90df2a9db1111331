// The blocks of c of a matmul: some of its rows by some panels of a section, whose k are multiplied one block after the
// other.
#pragma once

#include "ops/cpu/convert.h"
#include "ops/cpu/gemm_factors.h"
#include "ops/cpu/gemm_sections.h"
#include "ops/cpu/huge_buffer.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

class GemmBlocks {
 public:
  /// Where b is packed, a section after the other in turn, and where sums are kept that are rounded later.
  struct Buffers {
    float* packed_b = nullptr;
    std::int64_t num_sections = 1, section_size = 0;
    float* sums = nullptr;
    std::int64_t sums_stride = 0;
  };
  /// What is multiplied: its rows are those of the band.
  struct Block {
    GemmRange rows, panels;
    bool packs_b = false;
    GemmRange next_rows = {};  // most likely this thread's next, none: no rows
    std::int64_t next_block = 0;
  };

  /// Of a band of rows.
  GemmBlocks(const GemmKernels& kernels, const GemmProduct& product, const GemmSections& sections, GemmRange band,
             const Buffers& buffers)
      : kernels_(kernels),
        g_(product),
        sections_(sections),
        factors_(kernels, product, sections.depths()),
        band_(band),
        buffers_(buffers) {}

  void multiply(const GemmSection& s, const Block& c) const {
    const KernelsInUse in_use(kernels_);
    const std::int64_t width = c.panels.size * kernels_.tile_columns;
    const std::int64_t a_units = parts_of(c.rows.size, kernels_.tile_rows) * factors_.tile_units(),
                       tile = kernels_.tile_rows * kernels_.tile_columns;
    const bool has_own_sums = narrows(g_) && sections_.num_groups() == 1;
    float* packed_a =
        HugeBuffer::of_this_thread(HugeBuffer::own).floats(a_units + tile + (has_own_sums ? c.rows.size * width : 0));
    float* edge = packed_a + a_units;
    const Sums sums = has_own_sums ? Sums{edge + tile, width} : sums_of(s, c);
    for (std::int64_t block = s.blocks.first; block < s.end_block(); ++block) {
      factors_.pack_a(in_matrix(c.rows), block, packed_a);
      Block now = c;
      if (block + 1 < s.end_block()) {
        now.next_rows = c.rows;
        now.next_block = block + 1;
      }
      multiply_panels(s, now, block, {packed_a, edge, sums});
    }
    if (narrows(g_) && s.end_block() == sections_.depths().num_blocks) round(s, c, sums);
  }

 private:
  struct Sums {
    float* first = nullptr;
    std::int64_t stride = 0;
  };
  struct Places {
    float *packed_a = nullptr, *edge = nullptr;
    Sums sums;
  };

  [[nodiscard]] GemmRange in_matrix(GemmRange rows) const { return {band_.first + rows.first, rows.size}; }

  /// Sums that are kept for the next section: elsewhere, or in c.
  [[nodiscard]] Sums sums_of(const GemmSection& s, const Block& c) const {
    const std::int64_t column = c.panels.first * kernels_.tile_columns;
    if (narrows(g_)) return {buffers_.sums + c.rows.first * buffers_.sums_stride + column, buffers_.sums_stride};
    return {reinterpret_cast<float*>(g_.c) + in_matrix(c.rows).first * g_.c_stride + s.columns.first + column,
            g_.c_stride};
  }

  [[nodiscard]] float* packed_b(const GemmSection& s, std::int64_t panel, std::int64_t block) const {
    return buffers_.packed_b + s.index % buffers_.num_sections * buffers_.section_size +
           (panel * s.units + sections_.units_before(s, block)) * kernels_.tile_columns;
  }

  void multiply_panels(const GemmSection& s, const Block& c, std::int64_t block, const Places& places) const {
    const std::int64_t num_tiles = parts_of(c.rows.size, kernels_.tile_rows), last = c.panels.first + c.panels.size - 1;
    const auto fetch_a = [&](std::int64_t tiles) {
      return factors_.fetch_a(c.next_rows.size == 0 ? GemmRange{} : in_matrix(c.next_rows), c.next_block, tiles);
    };
    Fetch soon = fetch_a(c.panels.size * num_tiles);
    for (std::int64_t panel = c.panels.first; panel <= last; ++panel) {
      if (c.packs_b) {
        factors_.pack_b(sections_.columns_of(s, panel), block, packed_b(s, panel, block));
        soon =
            panel == last ? fetch_a(num_tiles) : factors_.fetch_b(sections_.columns_of(s, panel + 1), block, num_tiles);
      }
      Places of_panel = places;
      of_panel.sums.first += (panel - c.panels.first) * kernels_.tile_columns;
      multiply_tiles(c.rows.size,
                     {.b = packed_b(s, panel, block),
                      .depth = sections_.depths().units(block),
                      .adds = block > 0 || (g_.accumulates && !narrows(g_)),
                      .is_by_k = factors_.a_is_by_k(),
                      .soon = {}},
                     of_panel, {sections_.columns_of(s, panel).size, soon});
    }
  }

  struct Panel {
    std::int64_t num_columns;
    Fetch& soon;
  };

  /// All rows of a block and a panel. Sums of their own have room for whole tiles.
  void multiply_tiles(std::int64_t num_rows, TileArgs args, const Places& places, const Panel& panel) const {
    const GemmTileRows tiles(num_rows, kernels_);
    const std::int64_t width = kernels_.tile_columns, stride = places.sums.stride;
    const bool is_edge = panel.num_columns < width && !narrows(g_);
    for (std::int64_t index = 0; index < tiles.size(); ++index) {
      const GemmRange tile = tiles[index];
      float* into = places.sums.first + tile.first * stride;
      args.a = places.packed_a + index * factors_.tile_units();
      args.c = is_edge ? places.edge : into;
      args.ldc = is_edge ? width : stride;
      args.rows = static_cast<int>(tile.size);
      args.soon = panel.soon.next();
      args.next_c = index + 1 < tiles.size() ? into + tile.size * stride : places.sums.first + width;
      const auto copy_edge = [&](const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
        for (std::int64_t i = 0; i < tile.size; ++i)
          std::copy_n(from + i * from_stride, panel.num_columns, to + i * to_stride);
      };
      if (is_edge && args.adds) copy_edge(into, stride, places.edge, width);
      kernels_.multiply(args);
      if (is_edge) copy_edge(places.edge, width, into, stride);
    }
  }

  void round(const GemmSection& s, const Block& c, const Sums& sums) const {
    const std::int64_t width = kernels_.tile_columns, column = c.panels.first * width;
    const std::int64_t valid = std::min(s.columns.size - column, c.panels.size * width);
    const std::int64_t first = in_matrix(c.rows).first * g_.c_stride + s.columns.first + column;
    for (std::int64_t i = 0; i < c.rows.size; ++i)
      narrow({sums.first + i * sums.stride, g_.c + (first + i * g_.c_stride) * size_of(g_.c_dtype), g_.c_dtype, valid,
              g_.accumulates});
  }

  const GemmKernels& kernels_;
  const GemmProduct& g_;
  const GemmSections& sections_;
  const GemmFactors factors_;
  const GemmRange band_;
  const Buffers buffers_;
};

}  // namespace echelon
