// Matrix matmuls, and the biases before and after them. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// The format to which a matmul rounds an operand before it multiplies: the operand's own, or 8 bits with one scale
/// for the whole tensor (ops/float8.h).
enum class OperandFormat : std::uint8_t { own, float8_e4m3, float8_e5m2 };

/// c[M, N] = op(a)[M, K] op(b)[K, N], or += if `accumulates`. a and b share a dtype; c has that dtype or its
/// accumulate_dtype. In float8 both operands are rounded, but not both to e5m2; N, K and the M of a transposed a are
/// multiples of 16, and the backend may put the rounded operands into `scratch`, int32 [float8_scratch_size].
struct MatmulArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor a, b, c;
  bool transpose_a = false;  // a is [K, M]
  bool transpose_b = false;  // b is [N, K]
  bool accumulates = false;
  OperandFormat a_format = OperandFormat::own, b_format = OperandFormat::own;
  Tensor scratch = {};

  [[nodiscard]] bool is_float8() const { return a_format != OperandFormat::own; }
};
/// One byte for each element of the operands, in lines of 256, and one more line.
[[nodiscard]] constexpr std::int64_t float8_scratch_size(std::int64_t a_elements, std::int64_t b_elements) {
  return ((a_elements + 255) / 256 + (b_elements + 255) / 256 + 1) * (256 / size_of(DType::int32));
}

/// y[N, D] += bias[D] in every row.
struct AddBiasArgs {
  Tensor y, bias;
};
/// dbias[D] += column sums of dy[N, D].
struct BiasBackwardArgs {
  Tensor dy, dbias;
};

}  // namespace echelon
