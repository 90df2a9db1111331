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

constexpr int most_rows = StreamedKernels::most_rows, most_vectors = 4, half_lanes = 8;
// Dot products take six cycles: fewer sums would wait for them.
constexpr int narrow_rows = 8;

struct Whole {
  using Sums = __m512;
  using Pairs = __m512bh;
  static constexpr int width = lanes;
  static Sums zero() { return _mm512_setzero_ps(); }
  static Sums load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Sums v) { _mm512_storeu_ps(p, v); }
  static Sums add(Sums x, Sums y) { return _mm512_add_ps(x, y); }
  static Pairs pairs(const float* p) { return reinterpret_cast<Pairs>(_mm512_loadu_si512(p)); }
  static Pairs broadcast(float pair) { return reinterpret_cast<Pairs>(_mm512_set1_ps(pair)); }  // copies bits
  static Sums multiply_add(Sums sum, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sum, a, b); }
};
/// Where c has few columns. Two of them are not slower than one whole vector, whose broadcasts would limit it.
struct Half {
  using Sums = __m256;
  using Pairs = __m256bh;
  static constexpr int width = half_lanes;
  static Sums zero() { return _mm256_setzero_ps(); }
  static Sums load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Sums v) { _mm256_storeu_ps(p, v); }
  static Sums add(Sums x, Sums y) { return _mm256_add_ps(x, y); }
  static Pairs pairs(const float* p) {
    return reinterpret_cast<Pairs>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Pairs broadcast(float pair) { return reinterpret_cast<Pairs>(_mm256_set1_ps(pair)); }
  static Sums multiply_add(Sums sum, Pairs a, Pairs b) { return _mm256_dpbf16_ps(sum, a, b); }
};

__m256i row_of(const bfloat16* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// Where values of two rows are, the second ones from 32 on.
__m512i order_of_pairs() {
  const __m512i first = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_or_si512(first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(32)), 16));
}

template <class V, int vectors>
constexpr bool is_narrow = V::width == half_lanes&& vectors <= 2;

template <class V, int rows, int vectors, Streamed streamed>
[[gnu::noinline]] void multiply_streamed(const StreamedTile& args) {
  const StreamedTile t = args;  // a copy that no store to c can change
  constexpr int width = V::width;
  constexpr bool is_of_b = streamed == Streamed::b || streamed == Streamed::packed_b, is_by_k = streamed == Streamed::c;
  typename V::Sums sums[rows][vectors];
  HWY_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < vectors; ++v) {
      sums[i][v] = V::zero();
      if (is_of_b && t.start != nullptr) sums[i][v] = V::load(t.start + i * t.start_stride + v * width);
    }
  }
  constexpr int rows_ahead = is_narrow<V, vectors> ? narrow_rows : most_rows;
  constexpr int line = 16, interval = is_of_b ? StreamedKernels::burst_units : line, ahead = 8;  // units
  if constexpr (is_by_k) {
    HWY_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < vectors * width; j += line) __builtin_prefetch(t.later_c + i * t.c_stride + j, 0, 2);
    }
  }
  LinesAhead lines;
  if constexpr (is_of_b) lines = *t.ahead;
  const float* a = t.a;
  float* b = t.b;
  const auto* from = static_cast<const bfloat16*>(t.source);
  const __m512i order = order_of_pairs();
  for (std::int64_t first = 0; first < t.depth; first += is_by_k ? t.depth : interval) {
    if constexpr (is_of_b) lines.burst();
    if constexpr (streamed == Streamed::a) {
      HWY_UNROLL(8)
      for (int i = 0; i < rows; ++i) __builtin_prefetch(a + (rows_ahead + i) * t.a_stride, 0, 2);
    }
    const std::int64_t last = is_by_k ? t.depth : std::min(t.depth, first + interval);
    HWY_UNROLL(4)
    for (std::int64_t l = first; l < last; ++l) {
      typename V::Pairs b_row[vectors];
      if constexpr (streamed == Streamed::b) {
        HWY_UNROLL(4)
        for (int i = 0; i < vectors * width; i += 32) {
          __builtin_prefetch(from + 2 * ahead * t.source_stride + i);
          __builtin_prefetch(from + (2 * ahead + 1) * t.source_stride + i);
        }
        HWY_UNROLL(4)
        for (int v = 0; v < vectors; ++v) {
          const __m512i pairs =
              _mm512_permutex2var_epi16(_mm512_castsi256_si512(row_of(from + v * width)), order,
                                        _mm512_castsi256_si512(row_of(from + t.source_stride + v * width)));
          _mm512_storeu_si512(b + v * width, pairs);
          b_row[v] = reinterpret_cast<__m512bh>(pairs);
        }
        from += 2 * t.source_stride;
      } else {
        if constexpr (streamed == Streamed::c) {
          HWY_UNROLL(4)
          for (int i = 0; i < vectors * width; i += line) __builtin_prefetch(b + ahead * vectors * width + i);
        }
        HWY_UNROLL(4)
        for (int v = 0; v < vectors; ++v) b_row[v] = V::pairs(b + v * width);
      }
      HWY_UNROLL(8)
      for (int i = 0; i < rows; ++i) {
        const auto a_pair = V::broadcast(is_by_k ? a[i] : a[i * t.a_stride]);
        HWY_UNROLL(4)
        for (int v = 0; v < vectors; ++v) sums[i][v] = V::multiply_add(sums[i][v], a_pair, b_row[v]);
      }
      a += is_by_k ? t.a_stride : 1;
      b += vectors * width;
    }
  }
  if constexpr (is_of_b) *t.ahead = lines;
  HWY_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < vectors; ++v) {
      float* c = t.c + i * t.c_stride + v * width;
      V::store(c, t.adds ? V::add(V::load(c), sums[i][v]) : sums[i][v]);
    }
  }
}

using Multiply = void (*)(const StreamedTile&);
template <class V, int vectors, Streamed streamed, int... rows_minus_one>
constexpr auto table_of(std::integer_sequence<int, rows_minus_one...>) {
  return std::array<Multiply, sizeof...(rows_minus_one)>{
      &multiply_streamed<V, rows_minus_one + 1, vectors, streamed>...};
}
using Rows = std::make_integer_sequence<int, most_rows>;
using NarrowRows = std::make_integer_sequence<int, narrow_rows>;
using Vectors = std::make_integer_sequence<int, most_vectors>;

template <int width, int... vectors_minus_one>
constexpr std::array<void (*)(const PackArgs&), 5> packings(std::integer_sequence<int, vectors_minus_one...>) {
  return {nullptr, &pack_columns<(vectors_minus_one + 1) * width>...};
}

template <class V, int... vectors_minus_one>
constexpr auto tables_of_a(std::integer_sequence<int, vectors_minus_one...>) {
  return std::array{table_of<V, vectors_minus_one + 1, Streamed::a>(Rows())...};
}

void multiply(const StreamedTile& t) {
  static constexpr auto of_a = tables_of_a<Whole>(Vectors()), halves_of_a = tables_of_a<Half>(Vectors());
  static constexpr auto of_b = table_of<Whole, most_vectors, Streamed::b>(Rows());
  static constexpr auto of_packed_b = table_of<Whole, most_vectors, Streamed::packed_b>(Rows());
  static constexpr auto of_c = table_of<Whole, most_vectors, Streamed::c>(Rows());
  static constexpr auto of_a_1 = table_of<Half, 1, Streamed::a>(NarrowRows()),
                        of_a_2 = table_of<Half, 2, Streamed::a>(NarrowRows());
  const auto index = static_cast<std::size_t>(t.rows - 1), vectors = static_cast<std::size_t>(t.vectors - 1);
  if (t.is_half && t.vectors <= 2) return (t.vectors == 1 ? of_a_1 : of_a_2)[index](t);
  switch (t.streamed) {
    case Streamed::a: return (t.is_half ? halves_of_a : of_a)[vectors][index](t);
    case Streamed::b: return of_b[index](t);
    case Streamed::packed_b: return of_packed_b[index](t);
    case Streamed::c: return of_c[index](t);
  }
}

constexpr StreamedKernels kernels = {.narrow_rows = narrow_rows,
                                     .lanes = lanes,
                                     .half_lanes = half_lanes,
                                     .most_vectors = most_vectors,
                                     .reads_rows = true,
                                     .pack_rows = pack_rows<most_vectors * lanes>,
                                     .pack_columns = packings<lanes>(Vectors()),
                                     .pack_half_columns = packings<half_lanes>(Vectors()),
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
