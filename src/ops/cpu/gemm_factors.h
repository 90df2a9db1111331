// Packs parts of the factors of a matmul into panels, and fetches what is packed next.
#pragma once

#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_fetch.h"
#include "ops/cpu/gemm_splits.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

class GemmFactors {
 public:
  GemmFactors(const GemmKernels& kernels, const GemmProduct& product, const GemmDepths& depths)
      : kernels_(kernels), a_(product.a), b_(product.b), depths_(depths) {}

  [[nodiscard]] bool a_is_by_k() const { return a_.is_transposed && kernels_.panel_rows > 0; }
  /// Of a tile's rows of a.
  [[nodiscard]] std::int64_t tile_units() const {
    return a_is_by_k() ? kernels_.most_units * kernels_.panel_rows : kernels_.row_stride * kernels_.tile_rows;
  }

  /// [tile][tile_units()]
  void pack_a(GemmRange rows, std::int64_t block, float* into) const {
    const GemmRange whole = depths_.numbers(block);
    const GemmTileRows tiles(rows.size, kernels_);
    for_strips(whole, !a_.is_transposed, [&](GemmRange k) {
      const std::int64_t unit = (k.first - whole.first) / kernels_.per_unit;
      for (std::int64_t index = 0; index < tiles.size(); ++index) {
        const GemmRange tile = tiles[index];
        const std::int64_t row = rows.first + tile.first;
        const std::int64_t offset = a_.is_transposed ? k.first * a_.stride + row : row * a_.stride + k.first;
        const PackArgs args{.from = a_.data + offset * size_of(kernels_.dtype),
                            .stride = a_.stride,
                            .k = k.size,
                            .count = tile.size,
                            .into = into + index * tile_units() + unit * (a_is_by_k() ? kernels_.panel_rows : 1)};
        (a_.is_transposed ? kernels_.pack_a_columns : kernels_.pack_a_rows)(args);
      }
    });
  }
  /// [unit][tile_columns]
  void pack_b(GemmRange columns, std::int64_t block, float* into) const {
    const GemmRange k = depths_.numbers(block);
    const std::int64_t offset =
        b_.is_transposed ? columns.first * b_.stride + k.first : k.first * b_.stride + columns.first;
    const PackArgs args{.from = b_.data + offset * size_of(kernels_.dtype),
                        .stride = b_.stride,
                        .k = k.size,
                        .count = columns.size,
                        .into = into};
    (b_.is_transposed ? kernels_.pack_b_columns : kernels_.pack_b_rows)(args);
  }

  [[nodiscard]] Fetch fetch_a(GemmRange rows, std::int64_t block, std::int64_t num_tiles) const {
    if (rows.size == 0) return {};
    return fetch(a_, !a_.is_transposed, depths_.numbers(block), rows, num_tiles);
  }
  [[nodiscard]] Fetch fetch_b(GemmRange columns, std::int64_t block, std::int64_t num_tiles) const {
    return fetch(b_, b_.is_transposed, depths_.numbers(block), columns, num_tiles);
  }

 private:
  /// Where k is strided, in strips of few rows, over which all panels go, so that their pages and lines stay cached.
  template <class F>
  static void for_strips(GemmRange k, bool is_contiguous, F&& f) {
    if (is_contiguous) return f(k);
    for (std::int64_t l = 0; l < k.size; l += strip) f(GemmRange{k.first + l, std::min(strip, k.size - l)});
  }

  /// A part of a factor: its k by its rows of a or columns of b.
  [[nodiscard]] Fetch fetch(const Factor& factor, bool is_k_contiguous, GemmRange k, GemmRange others,
                            std::int64_t num_tiles) const {
    const GemmRange rows = is_k_contiguous ? others : k, columns = is_k_contiguous ? k : others;
    const std::int64_t size = size_of(kernels_.dtype), stride = factor.stride * size;
    return {factor.data + rows.first * stride + columns.first * size, stride, rows.size, columns.size * size,
            num_tiles};
  }

  const GemmKernels& kernels_;
  const Factor &a_, &b_;
  const GemmDepths& depths_;
};

}  // namespace echelon
