// RMSNorm (Zhang and Sennrich 2019): y = x rstd w with rstd = 1/sqrt(mean(x^2) + eps), row by row. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// rstd [N] is written. With a residual, x += residual first.
struct RmsNormArgs {
  Tensor x, w, y, rstd;
  Tensor residual = {};
  double eps = 1e-5;
};
/// With dresidual, the gradient that reaches x past the norm, dx is the sum of both; dx may be dresidual.
struct RmsNormBackwardInputArgs {
  Tensor dy, x, w, rstd, dx;
  Tensor dresidual = {};
};
struct RmsNormBackwardWeightArgs {
  Tensor dy, x, rstd, dw;
};
/// Both gradients in one pass over dy and x.
struct RmsNormBackwardArgs {
  Tensor dy, x, w, rstd, dx, dw;
  Tensor dresidual = {};
};

}  // namespace echelon
