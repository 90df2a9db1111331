// The products of attention by AMX's matrix registers: bfloat16 pairs with float32 sums. Registers hold 16 rows of 16
// units, and a unit is a pair of summands or a sum.
#pragma once

#include "ops/cpu/attention/rows_ahead.h"

#include <cstdint>

namespace echelon {

constexpr std::int64_t matrix_side = 32;  // of a block of sums: two registers by two

/// The registers of this thread belong to products of attention as long as this exists.
class MatrixRegisters {
 public:
  MatrixRegisters();
  ~MatrixRegisters();
  MatrixRegisters(const MatrixRegisters&) = delete;
  MatrixRegisters& operator=(const MatrixRegisters&) = delete;
};

/// c[rows, columns] (+)= a[rows, depth] b[depth, columns]. a's units are pairs along its rows, b's the same ones along
/// its columns. Rows and columns are multiples of matrix_side, depth is one of half of it.
struct MatrixProduct {
  const std::uint32_t* a = nullptr;
  std::int64_t a_row = 0;
  const std::uint32_t* b = nullptr;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t num_rows = 0, num_columns = 0, depth = 0;
  bool accumulates = false;
};
/// While MatrixRegisters exist. A step of `ahead` for every block of sums.
void multiply_matrices(const MatrixProduct& product, RowsAhead& ahead);

/// into[C, 64 rows] = rows[64, C] of bfloat16; C is a multiple of matrix_side.
void transpose_pairs(const std::uint32_t* rows, std::int64_t C, std::uint32_t* into);
/// into[64, C] = sums[C, 64].
void transpose_sums(const float* sums, std::int64_t C, float* into);

}  // namespace echelon
