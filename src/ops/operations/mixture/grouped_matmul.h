// One matmul for each expert of a mixture, on the rows that ops/operations/mixture/experts.h defines.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// c[r] = a[r] w[e] for the rows r of expert e, or += if `accumulates`. a [R, K], c [R, N], w [E, K, N], all of one
/// dtype.
struct GroupedMatmulArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor a, w, offsets, c;
  bool transpose_w = false;  // w is [E, N, K]
  bool accumulates = false;
};
/// dw[e] += sum over the rows r of expert e of dy[r]^T x[r]. dy [R, F], x [R, D], dw [E, F, D].
struct GroupedMatmulBackwardWeightArgs {
  static constexpr bool multiplies_matrices = true;
  Tensor dy, x, offsets, dw;
};

}  // namespace echelon
