// Matrix matmuls, and the biases before and after them. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// The format to which a matmul rounds an operand before it multiplies: the operand's own, or 8 bits with one scale
/// for the whole tensor (ops/float8.h).
enum class OperandFormat : std::uint8_t { own, float8_e4m3, float8_e5m2 };

/// In which orders a rounded operand is stored: tensor cores read K innermost.
enum class Float8Order : std::uint8_t { as_is, transposed, both };

/// Where a backend may leave a rounded operand, for this matmul and for later ones that round the same tensor to the
/// same format. Neither the tensor nor this memory is written before the last one.
struct RoundedOperand {
  Tensor memory = {};  // int32 [float8_size]
  Float8Order order = Float8Order::as_is;
  bool is_made = false;     // by an earlier matmul
  bool finds_amax = false;  // of a tensor that was written without it: this matmul leaves it for later ones
};
/// Whether the largest magnitude of x, of which nothing is known yet, is found before x is rounded.
[[nodiscard]] constexpr bool needs_amax(const Tensor& x, const RoundedOperand& rounded) {
  return !rounded.is_made && (!x.has_amax || rounded.finds_amax);
}
/// One byte for each element and order, in lines of 256, and one more line.
[[nodiscard]] constexpr std::int64_t float8_size(std::int64_t num_elements, Float8Order order) {
  return ((num_elements + 255) / 256 * (order == Float8Order::both ? 2 : 1) + 1) * (256 / size_of(DType::int32));
}

/// c[M, N] = op(a)[M, K] op(b)[K, N], or += if `accumulates`. a and b share a dtype; c has that dtype or its
/// accumulate_dtype. In float8 both operands are rounded, but not both to e5m2; N and K are multiples of 16, and so are
/// the rows of an operand that is stored transposed.
struct MatmulArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor a, b, c;
  bool transpose_a = false;  // a is [K, M]
  bool transpose_b = false;  // b is [N, K]
  bool accumulates = false;
  OperandFormat a_format = OperandFormat::own, b_format = OperandFormat::own;
  RoundedOperand a_rounded = {}, b_rounded = {};  // in float8

  [[nodiscard]] bool is_float8() const { return a_format != OperandFormat::own; }
  /// In which it is read.
  [[nodiscard]] Float8Order a_order() const { return transpose_a ? Float8Order::transposed : Float8Order::as_is; }
  [[nodiscard]] Float8Order b_order() const { return transpose_b ? Float8Order::as_is : Float8Order::transposed; }
};
/// For both operands of a matmul by itself.
[[nodiscard]] constexpr std::int64_t float8_scratch_size(std::int64_t a_elements, std::int64_t b_elements) {
  return float8_size(a_elements, Float8Order::as_is) + float8_size(b_elements, Float8Order::as_is);
}
/// The matmul by itself, with its rounded operands in `scratch`, int32 [float8_scratch_size].
[[nodiscard]] MatmulArgs rounded_in(MatmulArgs args, Tensor scratch);
/// What a float8 matmul reads and writes to round the operands that are not made.
[[nodiscard]] std::int64_t rounding_bytes(const MatmulArgs& args);

/// y[N, D] += bias[D] in every row.
struct AddBiasArgs {
  Tensor y, bias;
};
/// dbias[D] += column sums of dy[N, D].
struct BiasBackwardArgs {
  Tensor dy, dbias;
};

}  // namespace echelon
