// Packs bfloat16 factors into panels whose units are two values that follow each other along k. To be included where
// the instruction set is one with AVX-512, once per file, after <immintrin.h>.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr int lanes = 16;  // units of a vector

inline std::uint32_t pair(bfloat16 first, bfloat16 second) {
  return static_cast<std::uint32_t>(second.bits) << 16 | first.bits;
}

inline void store(std::uint32_t unit, float* into) { std::memcpy(into, &unit, sizeof(unit)); }

/// Units l of a row whose values follow each other.
inline std::uint32_t unit_of(const bfloat16* row, std::int64_t l, std::int64_t k) {
  return pair(row[2 * l], 2 * l + 1 < k ? row[2 * l + 1] : bfloat16());
}

/// Units of a panel of k values, up to a multiple of the grain.
template <int grain>
constexpr std::int64_t padded_units(std::int64_t k) {
  return ((k + 1) / 2 + grain - 1) / grain * grain;
}

/// Zeros after the units of a panel [unit][width].
template <int width, int grain>
void pad_units(const PackArgs& p) {
  std::fill(p.into + (p.k + 1) / 2 * width, p.into + padded_units<grain>(p.k) * width, 0.0F);
}

/// k is contiguous: into [count][row_stride].
template <std::int64_t row_stride, int grain = 1>
void pack_a_rows(const PackArgs& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    const auto* from = static_cast<const bfloat16*>(p.from) + i * p.stride;
    float* into = p.into + i * row_stride;
    std::memcpy(into, from, static_cast<std::size_t>(p.k / 2) * sizeof(float));
    if (p.k % 2 == 1) store(unit_of(from, p.k / 2, p.k), into + p.k / 2);
    for (std::int64_t l = (p.k + 1) / 2; l < padded_units<grain>(p.k); ++l) into[l] = 0;
  }
}

inline __m512i widened(const bfloat16* from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

/// k is strided: two rows become one of pairs. Whole vectors are read as long as another row of k follows, so that they
/// end within the factor. Fetches the strip after this one.
template <int width, int grain = 1>
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
  pad_units<width, grain>(p);
}

template <int width>
void transpose_4x4(const bfloat16* from, std::int64_t stride, float* into) {
  const auto row = [=](std::int64_t i) { return _mm_loadu_ps(reinterpret_cast<const float*>(from + i * stride)); };
  __m128 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(into, r0);
  _mm_storeu_ps(into + width, r1);
  _mm_storeu_ps(into + 2L * width, r2);
  _mm_storeu_ps(into + 3L * width, r3);
}

/// k is contiguous: transposes units, in blocks of 16 along k, which are a cache line of each row. Fetches what comes
/// eight lines later.
template <int width, int grain = 1>
void pack_columns(const PackArgs& p) {
  const auto* from = static_cast<const bfloat16*>(p.from);
  constexpr std::int64_t block = 16;
  const std::int64_t depth = (p.k + 1) / 2, whole = p.k / 2;
  for (std::int64_t first = 0; first < depth; first += block) {
    const std::int64_t last = std::min(depth, first + block);
    for (std::int64_t i = 0; i < width; i += 4) {
      for (std::int64_t j = i; j < i + 4; ++j) __builtin_prefetch(from + j * p.stride + 2 * first + 256, 0, 2);
      std::int64_t l = first;
      if (i + 4 <= p.count)
        for (; l + 4 <= std::min(last, whole); l += 4)
          transpose_4x4<width>(from + i * p.stride + 2 * l, p.stride, p.into + l * width + i);
      for (; l < last; ++l)
        for (std::int64_t j = i; j < i + 4; ++j)
          store(j < p.count ? unit_of(from + j * p.stride, l, p.k) : 0, p.into + l * width + j);
    }
  }
  pad_units<width, grain>(p);
}

}  // namespace
}  // namespace echelon
