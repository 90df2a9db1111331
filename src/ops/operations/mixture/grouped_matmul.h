// One matmul for each expert of a mixture, on the rows that ops/operations/mixture/experts.h defines.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// c[r] = a[r] w[e] for the rows r of expert e, or += if `accumulates`. a [R, K], c [R, N], w [E, K, N], all of one
/// dtype. `expected_rows`: of R, those that experts are planned to have; -1: all.
struct GroupedMatmulArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor a, w, offsets, c;
  bool transpose_w = false;  // w is [E, N, K]
  bool accumulates = false;
  std::int64_t expected_rows = -1;
};
/// dw[e] += sum over the rows r of expert e of dy[r]^T x[r]. dy [R, F], x [R, D], dw [E, F, D].
struct GroupedMatmulBackwardWeightArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor dy, x, offsets, dw;
  std::int64_t expected_rows = -1;
};

}  // namespace echelon
