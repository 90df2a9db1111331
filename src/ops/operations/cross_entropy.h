// The vocabulary-parallel softmax and its loss, in chunks of the vocabulary. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"
#include "tensor/tokens.h"

#include <cstdint>

namespace echelon {

/// One chunk of the softmax. The logits [n, V] have the activations' dtype or its accumulate_dtype. Column j is token
/// first_column + j; columns from valid_columns on are padding and ignored. The results are in accumulate_dtype. Result
/// max[n] is the largest of these columns (-inf if none is valid). Result sum[n] is sum_j exp(logit_j - max). Result
/// target_logit[n] is the logit of the row's target if it is in this shard, else 0 (also for ignored targets). 16-bit
/// logits are left unchanged. Others belong to the backend afterwards, which may leave exp(logit - max) in their place
/// for cross_entropy_backward.
struct RowExpArgs {
  Tensor logits, targets, max, sum, target_logit;
  std::int64_t first_column = 0;
  std::int64_t valid_columns = 0;
};
/// sum[n] *= exp(max - row_max): from the largest logit of a shard to that of the whole row.
struct RescaleSumsArgs {
  Tensor sum, max, row_max;
};
/// lse[n] = max + log(sum); loss_sum (float64 [1]) += sum over rows with a target of lse - target_logit.
struct CrossEntropyArgs {
  Tensor max, sum, target_logit, targets, lse, loss_sum;
};
/// dlogits = scale (softmax - onehot(target)) with softmax = exp(logit - lse). It is zero in rows without a target and
/// in padding columns. The exps are the logits as row_exp of the same backend left them, and max is row_exp's. dlogits
/// has the activations' dtype; where exps have it too, it may be the same tensor. With loss_scale (float64 [1]), which
/// may change from step to step, scale is multiplied by it.
struct CrossEntropyBackwardArgs {
  Tensor exps, max, lse, targets, dlogits;
  Tensor loss_scale = {};
  std::int64_t first_column = 0;
  std::int64_t valid_columns = 0;
  double scale = 1.0;
};
/// scale times loss_scale, for backends in the host's memory.
[[nodiscard]] inline double scale_of(const CrossEntropyBackwardArgs& args) {
  return args.loss_scale.exists() ? args.scale * *args.loss_scale.as<double>() : args.scale;
}

}  // namespace echelon
