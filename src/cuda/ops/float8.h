// Operands of float8 matmuls (ops/float8.h), made on the device; the host does not read their values. One pass finds
// the largest value of an operand. A second one rounds it, and transposes it where tensor cores of sm_90 need K
// innermost.
#pragma once

#include "cuda/device/stream.h"
#include "ops/operations/matmul.h"

namespace echelon::cuda {

/// The rounded operands of a matmul in its scratch, a [M, K] and b [N, K], and the factor for the result.
struct Float8Operands {
  std::byte *a = nullptr, *b = nullptr;
  const float *back_a = nullptr, *back_b = nullptr;
};
/// Room for them, without making them.
[[nodiscard]] Float8Operands float8_operands(const MatmulArgs& args);
/// Enqueues their making. Throws Failure for float64.
void round_operands(const MatmulArgs& args, int num_multiprocessors, cudaStream_t stream);

}  // namespace echelon::cuda
