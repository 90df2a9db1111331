// Operands of float8 matmuls (ops/float8.h), rounded on the device; the host does not read their values. One launch
// finds the largest magnitudes of several operands, unless what wrote them has left these (cuda/ops/amax.h). Another
// one rounds them, in the order that they have or transposed, as tensor cores of sm_90 need K innermost, or in both.
#pragma once

#include "cuda/device/workspace.h"
#include "ops/gpu/product_calls.h"

namespace echelon::cuda {

/// A rounded operand in the order in which a matmul reads it, and what its values are multiplied by.
struct Float8Values {
  std::byte* values = nullptr;
  const float* back = nullptr;
};
[[nodiscard]] Float8Values float8_values(const Tensor& x, const RoundedOperand& rounded, Float8Order order);

/// Enqueues the making of operands of one dtype, at most ProductCalls::most_roundings. Throws Failure for float64.
void round_operands(const std::vector<OperandRounding>& roundings, const ComputeLane& lane);

}  // namespace echelon::cuda
