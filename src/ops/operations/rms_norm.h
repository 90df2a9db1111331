// RMSNorm (Zhang and Sennrich 2019): y = x rstd w with rstd = 1/sqrt(mean(x^2) + eps), row by row. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// sums[n] = sum of the row n of x y, or with w of x y (gain_offset + w): the part of a row's sum that is on this rank.
/// x, y [N, D]; sums [N] in accumulate_dtype, overwritten.
struct RowProductsArgs {
  Tensor x, y, sums;
  Tensor w = {};
  double gain_offset = 0;
};
/// rstd [N] is written. With a residual, x += residual first. The gain is gain_offset + w. Rounded before the gain, x
/// rstd has the dtype of x, as of Hugging Face's Llama.
struct RmsNormArgs {
  static constexpr bool leaves_amax = true;
  Tensor x, w, y, rstd;
  Tensor residual = {};
  double eps = 1e-5;
  double gain_offset = 0;
  bool rounds_before_gain = false;
  Tensor squares = {};  // [N] in accumulate_dtype, where x has a part of rows of `width`: their sums of squares
  std::int64_t width = 0;
};
/// With dresidual, the gradient that reaches x past the norm, dx is the sum of both; dx may be dresidual.
struct RmsNormBackwardInputArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, x, w, rstd, dx;
  Tensor dresidual = {};
  double gain_offset = 0;
  Tensor products = {};  // likewise: the sums over whole rows of dy x (gain_offset + w)
  std::int64_t width = 0;
};
struct RmsNormBackwardWeightArgs {
  Tensor dy, x, rstd, dw;
};
/// Both gradients in one pass over dy and x.
struct RmsNormBackwardArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, x, w, rstd, dx, dw;
  Tensor dresidual = {};
  double gain_offset = 0;
};

}  // namespace echelon
