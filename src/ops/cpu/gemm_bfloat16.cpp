// Tiles by AVX-512's dot products of bfloat16 pairs (vdpbf16ps): a unit of a panel is two values that follow each other
// along k, and twice as many multiplications are done per unit. Some CPUs do that at the rate of float32's
// multiply-adds, some at a quarter of it.
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/processor_kind.h"
#include "ops/cpu/streamed_kernels.h"
#include "ops/cpu/targets.h"

#include "hwy/base.h"
#include "hwy/targets.h"

#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 finds it, falsely, in its own intrinsics
#endif
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

// A region, not an attribute of each function: templates that are only named in a table would lose it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")

#include "ops/cpu/gemm_pairs-inl.h"

namespace echelon {
namespace {

constexpr int tile_rows = 14, tile_vectors = 2, tile_columns = tile_vectors * lanes, panel_rows = 16;
constexpr std::int64_t most_units = 768, row_stride = row_stride_of(most_units);

template <int rows, bool is_by_k>
void multiply_rows(const TileArgs& args) {
  const TileArgs t = args;  // a copy that no store to c can change
  __m512 sums[rows][tile_vectors];
  HWY_UNROLL(16)
  for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < tile_vectors; ++v) sums[i][v] = _mm512_setzero_ps();
  }
  const float *a = t.a, *b = t.b;
  TilePrefetch<rows, tile_columns> prefetch(t);
  for (std::int64_t first = 0; first < t.depth; first += prefetch.interval) {
    prefetch.burst(first);
    const std::int64_t last = std::min(t.depth, first + prefetch.interval);
    HWY_UNROLL(4)
    for (std::int64_t l = first; l < last; ++l) {
      __builtin_prefetch(b + 16L * tile_columns);
      __builtin_prefetch(b + 16L * tile_columns + lanes);
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b)),
                 b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + lanes));
      HWY_UNROLL(16)
      for (int i = 0; i < rows; ++i) {
        // set1 copies bits.
        const auto a_pair = reinterpret_cast<__m512bh>(_mm512_set1_ps(is_by_k ? a[i] : a[i * row_stride]));
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], a_pair, b0);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], a_pair, b1);
      }
      a += is_by_k ? panel_rows : 1;
      b += tile_columns;
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < tile_vectors; ++v) {
      float* c = t.c + i * t.ldc + v * lanes;
      _mm512_storeu_ps(c, t.adds ? _mm512_add_ps(_mm512_loadu_ps(c), sums[i][v]) : sums[i][v]);
    }
  }
}

template <bool is_by_k, int... rows_minus_one>
constexpr auto table_of(std::integer_sequence<int, rows_minus_one...>) {
  return std::array{&multiply_rows<rows_minus_one + 1, is_by_k>...};
}

void multiply(const TileArgs& t) {
  static constexpr auto by_row = table_of<false>(std::make_integer_sequence<int, tile_rows>());
  static constexpr auto by_k = table_of<true>(std::make_integer_sequence<int, tile_rows>());
  const auto index = static_cast<std::size_t>(t.rows - 1);
  (t.is_by_k ? by_k : by_row)[index](t);
}

constexpr GemmKernels kernels = {.dtype = DType::bfloat16,
                                 .tile_rows = tile_rows,
                                 .tile_columns = tile_columns,
                                 .panel_rows = panel_rows,
                                 .per_unit = 2,
                                 .most_units = most_units,
                                 .row_stride = row_stride,
                                 .most_tiles = 8,
                                 .pack_a_rows = pack_a_rows<row_stride>,
                                 .pack_a_columns = pack_rows<panel_rows>,
                                 .pack_b_rows = pack_rows<tile_columns>,
                                 .pack_b_columns = pack_columns<tile_columns>,
                                 .multiply = multiply,
                                 .streamed = streamed_bfloat16_kernels};

}  // namespace
}  // namespace echelon

HWY_POP_ATTRIBUTES

namespace echelon {

const GemmKernels* bfloat16_kernels() {
  static const bool has_products = this_processor().has_avx512_bf16;
  return kernels_use_avx512() && has_products ? &kernels : nullptr;
}

}  // namespace echelon
#else
namespace echelon {
const GemmKernels* bfloat16_kernels() { return nullptr; }
}  // namespace echelon
#endif
