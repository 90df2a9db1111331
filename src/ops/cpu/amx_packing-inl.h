// Packs bfloat16 factors into rows of units for AMX's registers. To be included as amx_registers-inl.h is.
#pragma once

#include "ops/cpu/amx_registers-inl.h"
#include "ops/cpu/gemm_pairs-inl.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace echelon {
namespace {

__mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<std::int64_t>(count, 0, side)) - 1);
}

/// k is strided: transposes squares of units, into [count][row_stride]. Fetches the strip after this one.
template <std::int64_t row_stride>
void pack_a_columns(const PackArgs& p) {
  for (std::int64_t l = 0; l < p.k; l += 2L * side)
    for (std::int64_t first = 0; first < p.count; first += side) {
      const __mmask16 columns = first_lanes(p.count - first);
      const auto row_of = [&](std::int64_t k) {
        const bfloat16* from = static_cast<const bfloat16*>(p.from) + k * p.stride + first;
        __builtin_prefetch(from + strip * p.stride, 0, 2);
        const auto mask = static_cast<__mmask16>(k < p.k ? columns : 0);
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
      };
      Rows rows;
      for (std::size_t unit = 0; unit < side; ++unit) {
        const std::int64_t k = l + 2 * static_cast<std::int64_t>(unit);
        rows[unit] = _mm512_or_si512(row_of(k), _mm512_slli_epi32(row_of(k + 1), 16));
      }
      transpose(rows);
      float* into = p.into + first * row_stride + l / 2;
      for (std::int64_t i = 0; i < std::min<std::int64_t>(side, p.count - first); ++i)
        _mm512_storeu_si512(into + i * row_stride, rows[static_cast<std::size_t>(i)]);
    }
}

}  // namespace
}  // namespace echelon
