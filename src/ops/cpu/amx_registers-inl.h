// The registers of AMX, and squares of units that are transposed in vectors. To be included where the instruction set
// is one with AVX-512 and AMX, once per file, after <immintrin.h>.
#pragma once

#include "hwy/base.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace echelon {
namespace {

constexpr int side = 16;  // of a register, in rows and in units of 4 bytes

/// Of the eight registers: every one has 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, first_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows = {side, side, side, side, side, side, side, side};
};
constexpr TileConfig config;

using Rows = __m512i[side];

/// rows[i][j] and rows[j][i] change places.
void transpose(Rows& rows) {
  Rows by_two;
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < side; i += 2) {
    by_two[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    by_two[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  Rows by_four;  // of four rows, the columns c, c + 4, c + 8 and c + 12, one after the other
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < side; i += 4) {
    by_four[i] = _mm512_unpacklo_epi64(by_two[i], by_two[i + 2]);
    by_four[i + 1] = _mm512_unpackhi_epi64(by_two[i], by_two[i + 2]);
    by_four[i + 2] = _mm512_unpacklo_epi64(by_two[i + 1], by_two[i + 3]);
    by_four[i + 3] = _mm512_unpackhi_epi64(by_two[i + 1], by_two[i + 3]);
  }
  HWY_UNROLL(4)
  for (std::size_t c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(by_four[c], by_four[c + 4], 0x88),
                  odd_low = _mm512_shuffle_i32x4(by_four[c], by_four[c + 4], 0xdd),
                  even_high = _mm512_shuffle_i32x4(by_four[c + 8], by_four[c + 12], 0x88),
                  odd_high = _mm512_shuffle_i32x4(by_four[c + 8], by_four[c + 12], 0xdd);
    rows[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[c + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[c + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[c + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace
}  // namespace echelon
