// Tiles by AVX-512's dot products of bfloat16 pairs (vdpbf16ps): a unit of a panel is two values that follow each other
// along k, and twice as many multiplications are done per unit. Some CPUs do that at the rate of float32's
// multiply-adds, some at a quarter of it.
#include "ops/cpu/gemm_kernels.h"
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
#include <cstring>
#include <utility>

// A region, not an attribute of each function: templates that are only named in a table would lose it.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")

namespace echelon {
namespace {

constexpr int tile_rows = 14, tile_vectors = 2, lanes = 16, tile_columns = tile_vectors * lanes, panel_rows = 16;
constexpr std::int64_t most_units = 768, row_stride = row_stride_of(most_units);

std::uint32_t pair(bfloat16 first, bfloat16 second) {
  return static_cast<std::uint32_t>(second.bits) << 16 | first.bits;
}

void store(std::uint32_t unit, float* into) { std::memcpy(into, &unit, sizeof(unit)); }

/// Units l of a row whose values follow each other.
std::uint32_t unit_of(const bfloat16* row, std::int64_t l, std::int64_t k) {
  return pair(row[2 * l], 2 * l + 1 < k ? row[2 * l + 1] : bfloat16());
}

void pack_a_rows(const PackArgs& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    const auto* from = static_cast<const bfloat16*>(p.from) + i * p.stride;
    float* into = p.into + i * row_stride;
    std::memcpy(into, from, static_cast<std::size_t>(p.k / 2) * sizeof(float));
    if (p.k % 2 == 1) store(unit_of(from, p.k / 2, p.k), into + p.k / 2);
  }
}

__m512i widened(const bfloat16* from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

/// k is strided: two rows become one of pairs. Whole vectors are read as long as another row of k follows, so that they
/// end within the factor. Fetches the strip after this one.
template <int width>
void pack_rows(const PackArgs& p) {
  for (std::int64_t l = 0; l < p.k; l += 2) {
    const auto* first = static_cast<const bfloat16*>(p.from) + l * p.stride;
    const bfloat16* second = first + p.stride;
    float* into = p.into + l / 2 * width;
    const bool has_second = l + 1 < p.k;
    __builtin_prefetch(first + strip * p.stride, 0, 2);
    __builtin_prefetch(second + strip * p.stride, 0, 2);
    if (has_second && (p.count == width || (l + 2 < p.k && p.stride >= width))) {
      for (int i = 0; i < width; i += lanes)
        _mm512_storeu_si512(into + i, _mm512_or_si512(widened(first + i), _mm512_slli_epi32(widened(second + i), 16)));
    } else {
      for (int i = 0; i < width; ++i)
        store(i < p.count ? pair(first[i], has_second ? second[i] : bfloat16()) : 0, into + i);
    }
  }
}

void transpose_4x4(const bfloat16* from, std::int64_t stride, float* into) {
  const auto row = [=](std::int64_t i) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + i * stride)); };
  __m128 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(into, r0);
  _mm_storeu_ps(into + tile_columns, r1);
  _mm_storeu_ps(into + 2L * tile_columns, r2);
  _mm_storeu_ps(into + 3L * tile_columns, r3);
}

/// k is contiguous: transposes units, in blocks of 16 along k, which are a cache line of each row. Fetches what comes
/// eight lines later.
void pack_columns(const PackArgs& p) {
  const auto* from = static_cast<const bfloat16*>(p.from);
  constexpr std::int64_t block = 16;
  const std::int64_t depth = (p.k + 1) / 2, whole = p.k / 2;
  for (std::int64_t first = 0; first < depth; first += block) {
    const std::int64_t last = std::min(depth, first + block);
    for (std::int64_t i = 0; i < tile_columns; i += 4) {
      for (std::int64_t j = i; j < i + 4; ++j) __builtin_prefetch(from + j * p.stride + 2 * first + 256, 0, 2);
      std::int64_t l = first;
      if (i + 4 <= p.count)
        for (; l + 4 <= std::min(last, whole); l += 4)
          transpose_4x4(from + i * p.stride + 2 * l, p.stride, p.into + l * tile_columns + i);
      for (; l < last; ++l)
        for (std::int64_t j = i; j < i + 4; ++j)
          store(j < p.count ? unit_of(from + j * p.stride, l, p.k) : 0, p.into + l * tile_columns + j);
    }
  }
}

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
                                 .pack_a_rows = pack_a_rows,
                                 .pack_a_columns = pack_rows<panel_rows>,
                                 .pack_b_rows = pack_rows<tile_columns>,
                                 .pack_b_columns = pack_columns,
                                 .multiply = multiply};

}  // namespace
}  // namespace echelon

HWY_POP_ATTRIBUTES

namespace echelon {

const GemmKernels* bfloat16_kernels() {
  __builtin_cpu_init();
  return kernels_use_avx512() && __builtin_cpu_supports("avx512bf16") ? &kernels : nullptr;
}

}  // namespace echelon
#else
namespace echelon {
const GemmKernels* bfloat16_kernels() { return nullptr; }
}  // namespace echelon
#endif
