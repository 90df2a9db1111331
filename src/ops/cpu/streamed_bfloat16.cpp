// Tiles of streamed factors by AVX-512's dot products of bfloat16 pairs, as in gemm_bfloat16.cpp.
#include "ops/cpu/streamed_kernels.h"
#include "ops/cpu/targets.h"

#include "hwy/base.h"

#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 finds it, falsely, in its own intrinsics
#endif
#include <immintrin.h>

#include <array>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")

#include "ops/cpu/gemm_pairs-inl.h"

namespace echelon {
namespace {

constexpr int most_vectors = 4, half_lanes = 8;
// Dot products take six cycles: fewer sums would wait for them.
constexpr int narrow_rows = 8;

__m256i row_of(const bfloat16* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// Where values of two rows are, the second ones from 32 on.
__m512i order_of_pairs() {
  const __m512i first = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_or_si512(first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(32)), 16));
}

/// Units are pairs.
struct Whole {
  using Sums = __m512;
  using Row = __m512bh;
  using Source = bfloat16;
  static constexpr int width = lanes, values_per_unit = 2, lone_rows = 0;
  static constexpr int rows_ahead(int /*vectors*/) { return StreamedKernels::most_rows; }
  static Sums zero() { return _mm512_setzero_ps(); }
  static Sums load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Sums x) { _mm512_storeu_ps(p, x); }
  static Sums add(Sums x, Sums y) { return _mm512_add_ps(x, y); }
  static Row row(const float* p) { return reinterpret_cast<Row>(_mm512_loadu_si512(p)); }
  static Row broadcast(float unit) { return reinterpret_cast<Row>(_mm512_set1_ps(unit)); }  // copies bits
  static Sums multiply_add(Sums sum, Row a, Row b) { return _mm512_dpbf16_ps(sum, a, b); }
  Row take(const bfloat16* from, std::int64_t stride, float* into) const {
    const __m512i units = _mm512_permutex2var_epi16(_mm512_castsi256_si512(row_of(from)), order,
                                                    _mm512_castsi256_si512(row_of(from + stride)));
    _mm512_storeu_si512(into, units);
    return reinterpret_cast<Row>(units);
  }
  Whole() : order(order_of_pairs()) {}  // written out: an implicit one would not be compiled for AVX-512
  const __m512i order;
};

constexpr bool is_narrow(int vectors) { return vectors <= 2; }

/// Where c has few columns. Two of them are not slower than one whole vector, whose broadcasts would limit it.
struct Half {
  using Sums = __m256;
  using Row = __m256bh;
  using Source = bfloat16;
  static constexpr int width = half_lanes;
  static constexpr int rows_ahead(int vectors) { return is_narrow(vectors) ? narrow_rows : StreamedKernels::most_rows; }
  static Sums zero() { return _mm256_setzero_ps(); }
  static Sums load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Sums x) { _mm256_storeu_ps(p, x); }
  static Sums add(Sums x, Sums y) { return _mm256_add_ps(x, y); }
  static Row row(const float* p) {
    return reinterpret_cast<Row>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Row broadcast(float unit) { return reinterpret_cast<Row>(_mm256_set1_ps(unit)); }
  static Sums multiply_add(Sums sum, Row a, Row b) { return _mm256_dpbf16_ps(sum, a, b); }
};

#include "ops/cpu/streamed_tile-inl.h"

template <int width, int... vectors_minus_one>
constexpr std::array<void (*)(const PackArgs&), 5> packings(std::integer_sequence<int, vectors_minus_one...>) {
  return {nullptr, &pack_columns<(vectors_minus_one + 1) * width>...};
}

void multiply(const StreamedTile& t) {
  using NarrowRows = std::make_integer_sequence<int, narrow_rows>;
  static constexpr std::array narrow = {table_of<Half, 1, Streamed::a>(NarrowRows()),
                                        table_of<Half, 2, Streamed::a>(NarrowRows())};
  if (!t.is_half || !is_narrow(t.vectors)) return multiply_streamed_tile<Whole, Whole, Half>(t);
  narrow[static_cast<std::size_t>(t.vectors - 1)][static_cast<std::size_t>(t.rows - 1)](t);
}

constexpr StreamedKernels kernels = {.narrow_rows = narrow_rows,
                                     .lanes = lanes,
                                     .half_lanes = half_lanes,
                                     .most_vectors = most_vectors,
                                     .reads_rows = true,
                                     .pack_rows = pack_rows<most_vectors * lanes>,
                                     .pack_columns = packings<lanes>(StreamedVectors()),
                                     .pack_half_columns = packings<half_lanes>(StreamedVectors()),
                                     .multiply = multiply};

}  // namespace
}  // namespace echelon

HWY_POP_ATTRIBUTES

namespace echelon {
const StreamedKernels* streamed_bfloat16_kernels() { return &kernels; }
}  // namespace echelon
#else
namespace echelon {
const StreamedKernels* streamed_bfloat16_kernels() { return nullptr; }
}  // namespace echelon
#endif
