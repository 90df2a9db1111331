#include "ops/cpu/bfloat16_peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace echelon {

#if defined(__x86_64__)

__attribute__((target("avx512f,avx512bf16"))) double bfloat16_dot_products(std::int64_t repeats, float* sink) {
  constexpr int num_sums = 12;
  const __m512 start = _mm512_set1_ps(*sink);
  const __m512bh x = _mm512_cvtne2ps_pbh(start, start),
                 y = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3F), _mm512_set1_ps(2e-3F));
  __m512 sums[num_sums];  // of different starts: equal sums would be computed once
  for (int i = 0; i < num_sums; ++i) sums[i] = _mm512_set1_ps(*sink * static_cast<float>(i));
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, x, y);
  }
  for (const __m512& sum : sums) {
    float lanes[16];
    _mm512_storeu_ps(lanes, sum);
    *sink += lanes[0];
  }
  return 2.0 * 2.0 * 16.0 * num_sums * static_cast<double>(repeats);
}

__attribute__((target("amx-tile,amx-bf16"))) double bfloat16_tiles(std::int64_t repeats, float* sink) {
  constexpr int side = 16, num_sums = 4;
  struct alignas(64) {
    std::uint8_t palette = 1, zeros[15] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {side, side, side, side, side, side, side, side};
  } config;
  alignas(64) float values[side * side];
  for (float& value : values) value = *sink;  // as pairs of bfloat16: its high half and some small number
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, values, 64);
  _tile_loadd(5, values, 64);
  const std::int64_t num_products = repeats / side + 1;  // each as long as some dot products
  for (std::int64_t i = 0; i < num_products; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, values, 64);
  _tile_release();
  *sink += values[0];
  return 2.0 * 2.0 * side * side * side * num_sums * static_cast<double>(num_products);
}

#else

double bfloat16_dot_products(std::int64_t /*repeats*/, float* /*sink*/) { return 0; }
double bfloat16_tiles(std::int64_t /*repeats*/, float* /*sink*/) { return 0; }

#endif

}  // namespace echelon
