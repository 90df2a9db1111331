// The end of a step: the norm of the gradients, the factor that clips them, and AdamW.
#pragma once

#include "tensor/tensor.h"
#include "tensor/tensor_slice.h"

#include <cstdint>
#include <cstring>

namespace echelon {

/// sum (float64 [1]) += sum x^2, computed in float64.
struct SumOfSquaresArgs {
  Tensor x, sum;
};

/// Gradients of the loss sum / expected_targets loss_scale (1 by default), of which sum_of_squares is over all ranks,
/// become those of the mean over num_targets, clipped to max_norm (Pascanu et al. 2013), when they are multiplied by
/// `factor`. All tensors are float64 [1]; norm and factor are written:
///     correction = expected_targets / num_targets / loss_scale, or 0 without any target
///     norm = correction sqrt(sum_of_squares)
///     factor = correction min(1, max_norm / (norm + 1e-6)), without the minimum if max_norm is 0; NaN, with which
///     adamw changes nothing, if norm is not finite
struct GradientFactorArgs {
  Tensor sum_of_squares, num_targets, norm, factor;
  Tensor loss_scale = {};
  double expected_targets = 0, max_norm = 0;
};

/// The random bits with which values are rounded to bfloat16: a function of `key` and of an element's index in the
/// whole parameter, so that no layout changes them.
struct RoundingNoise {
  std::uint64_t stream = 0;  // of the parameter
  std::uint64_t key = 0;     // of the seed, and then of the step too (at_step)
  TensorSlice slice = {};    // what the tensors are of the parameter
};

/// The values of an AdamW step that change from step to step. They are in the backend's memory, so that a recorded step
/// can be replayed.
struct AdamWScalars {
  double lr = 0;
  double step_size = 0;   // lr / (1 - beta1^step)
  double sqrt_bias2 = 1;  // sqrt(1 - beta2^step)
  double step = 1;        // from 1
  double grad_scale = 1;  // GradientFactorArgs::factor
};
inline constexpr std::int64_t num_adamw_scalars = sizeof(AdamWScalars) / sizeof(double);

/// One AdamW step (Loshchilov and Hutter 2019) with PyTorch's order of operations, all tensors but `scalars` flat and
/// equally long:
///     g = grad_scale grad;  p -= lr weight_decay p;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
///     p -= step_size m / (sqrt(v) / sqrt_bias2 + eps)
/// with the values of AdamWScalars, read from `scalars` (float64 [num_adamw_scalars]) when it runs. If grad_scale is
/// NaN nothing changes. p is `master` (accumulate_dtype); `param` receives it rounded, and may be the same tensor as
/// `master`. With a bfloat16 `param`, `master` may be int16: the rest of p that `param` lacks (tensor/remainder.h). m
/// and v have the dtype of p, or bfloat16 where that is float32. Then they are rounded stochastically by `noise`, which
/// preserves their mean.
struct AdamWArgs {
  Tensor param, master, grad, m, v, scalars;
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  RoundingNoise noise = {};  // its key of the seed alone
};
/// `master` has what is missing in `param`.
[[nodiscard]] inline bool is_remainder(const AdamWArgs& args) {
  return args.param.dtype == DType::bfloat16 && args.master.dtype == DType::int16;
}
/// For backends in the host's memory.
[[nodiscard]] inline AdamWScalars scalars_of(const AdamWArgs& args) {
  AdamWScalars scalars;
  std::memcpy(&scalars, args.scalars.data, sizeof scalars);
  return scalars;
}

}  // namespace echelon
