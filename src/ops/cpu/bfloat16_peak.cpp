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

#else

double bfloat16_dot_products(std::int64_t /*repeats*/, float* /*sink*/) { return 0; }

#endif

}  // namespace echelon
