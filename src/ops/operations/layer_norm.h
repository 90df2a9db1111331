// LayerNorm (Ba et al. 2016): y = (x - mean) rstd w + b, row by row. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// mean, rstd [N] are written. With a residual, x += residual first.
struct LayerNormArgs {
  static constexpr bool leaves_amax = true;
  Tensor x, w, b, y, mean, rstd;
  Tensor residual = {};
  double eps = 1e-5;
};
/// With dresidual, the gradient that reaches x past the norm, dx is the sum of both; dx may be dresidual.
struct LayerNormBackwardInputArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, x, w, mean, rstd, dx;
  Tensor dresidual = {};
};
struct LayerNormBackwardWeightArgs {
  Tensor dy, x, mean, rstd, dw, db;
};
/// Both gradients in one pass over dy and x.
struct LayerNormBackwardArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, x, w, mean, rstd, dx, dw, db;
  Tensor dresidual = {};
};

}  // namespace echelon
