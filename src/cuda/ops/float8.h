// Operands of products in float8 (ops/float8.h), made on the device and without the host's knowing their numbers: one
// pass finds the largest number of an operand, a second one rounds it, and turns it where the product wants it with K
// innermost, as tensor cores take 8 bits on sm_90.
#pragma once

#include "cuda/device/stream.h"
#include "ops/operations/matmul.h"

namespace echelon::cuda {

/// Where the rounded operands of a product lie in its scratch: a [M, K] and b [N, K], and what their products are to be
/// multiplied by.
struct Float8Operands {
  std::byte *a = nullptr, *b = nullptr;
  const float *back_a = nullptr, *back_b = nullptr;
};
/// Room for them, without making them.
[[nodiscard]] Float8Operands float8_operands(const MatmulArgs& args);
/// Enqueues their making. Throws Failure for float64.
void round_operands(const MatmulArgs& args, int num_multiprocessors, cudaStream_t stream);

}  // namespace echelon::cuda
