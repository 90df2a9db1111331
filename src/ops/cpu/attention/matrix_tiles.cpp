#include "ops/cpu/attention/matrix_tiles.h"

#include "ops/cpu/targets.h"

#include "hwy/base.h"

#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 finds it, falsely, in its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <array>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")

#include "ops/cpu/amx_registers-inl.h"

namespace echelon {
namespace {

constexpr std::int64_t num_rows = 64;  // of what is transposed

template <class T>
std::int64_t bytes_of(std::int64_t count) {
  return count * static_cast<std::int64_t>(sizeof(T));
}

/// The sums of the registers 0 to 3, which are those of c row after row.
void load_sums(const float* c, std::int64_t stride) {
  const auto bytes = bytes_of<float>(stride);
  _tile_loadd(0, c, bytes);
  _tile_loadd(1, c + side, bytes);
  _tile_loadd(2, c + side * stride, bytes);
  _tile_loadd(3, c + side * stride + side, bytes);
}

void store_sums(float* c, std::int64_t stride) {
  const auto bytes = bytes_of<float>(stride);
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + side, bytes);
  _tile_stored(2, c + side * stride, bytes);
  _tile_stored(3, c + side * stride + side, bytes);
}

void multiply_block(const MatrixProduct& p, std::int64_t row, std::int64_t column) {
  const std::int64_t a_bytes = bytes_of<std::uint32_t>(p.a_row), b_bytes = bytes_of<std::uint32_t>(p.b_row);
  const std::uint32_t *a = p.a + row * p.a_row, *b = p.b + column;
  float* c = p.c + row * p.c_row + column;
  if (p.accumulates) {
    load_sums(c, p.c_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t l = 0; l < p.depth; l += side) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(7, b + side, b_bytes);
    _tile_loadd(5, a + side * p.a_row, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += side;
    b += side * p.b_row;
  }
  store_sums(c, p.c_row);
}

/// Of 16 rows, 16 units.
void load_square(const void* from, std::int64_t stride, Rows& rows) {
  const auto* units = static_cast<const std::uint32_t*>(from);
  for (int i = 0; i < side; ++i) rows[i] = _mm512_loadu_si512(units + i * stride);
}

/// The lower halves of the units of two vectors, and the upper ones.
struct Halves {
  __m512i lower, upper;
};
Halves halves_of(__m512i first, __m512i second) {
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  return {_mm512_permutex2var_epi16(first, even, second), _mm512_permutex2var_epi16(first, odd, second)};
}

void configure() { _tile_loadconfig(&config); }
void release() { _tile_release(); }

void multiply(const MatrixProduct& product, RowsAhead& ahead) {
  const MatrixProduct p = product;
  for (std::int64_t row = 0; row < p.num_rows; row += matrix_side)
    for (std::int64_t column = 0; column < p.num_columns; column += matrix_side) {
      ahead.step();
      multiply_block(p, row, column);
    }
}

void transpose(const std::uint32_t* rows, std::int64_t C, std::uint32_t* into) {
  const std::int64_t width = C / 2;
  for (std::int64_t row = 0; row < num_rows; row += 2L * side)
    for (std::int64_t unit = 0; unit < width; unit += side) {
      Rows first, second;
      load_square(rows + row * width + unit, width, first);
      load_square(rows + (row + side) * width + unit, width, second);
      transpose(first);
      transpose(second);
      std::uint32_t* c = into + unit * num_rows + row / 2;  // two rows of num_rows / 2 units for each unit
      for (int i = 0; i < side; ++i, c += num_rows) {
        const Halves halves = halves_of(first[i], second[i]);
        _mm512_storeu_si512(c, halves.lower);
        _mm512_storeu_si512(c + num_rows / 2, halves.upper);
      }
    }
}

void transpose(const float* sums, std::int64_t C, float* into) {
  for (std::int64_t row = 0; row < num_rows; row += side)
    for (std::int64_t c = 0; c < C; c += side) {
      Rows square;
      load_square(sums + c * num_rows + row, num_rows, square);
      transpose(square);
      for (int i = 0; i < side; ++i) _mm512_storeu_si512(into + (row + i) * C + c, square[i]);
    }
}

}  // namespace
}  // namespace echelon

HWY_POP_ATTRIBUTES

namespace echelon {

// Declared without those attributes, so defined without them.
MatrixRegisters::MatrixRegisters() { configure(); }
MatrixRegisters::~MatrixRegisters() { release(); }
void multiply_matrices(const MatrixProduct& product, RowsAhead& ahead) { multiply(product, ahead); }
void transpose_pairs(const std::uint32_t* rows, std::int64_t C, std::uint32_t* into) { transpose(rows, C, into); }
void transpose_sums(const float* sums, std::int64_t C, float* into) { transpose(sums, C, into); }

}  // namespace echelon
#else
// No choice of kernels leads here (amx_kernels()).
namespace echelon {
MatrixRegisters::MatrixRegisters() = default;
MatrixRegisters::~MatrixRegisters() = default;
void multiply_matrices(const MatrixProduct&, RowsAhead&) {}
void transpose_pairs(const std::uint32_t*, std::int64_t, std::uint32_t*) {}
void transpose_sums(const float*, std::int64_t, float*) {}
}  // namespace echelon
#endif
