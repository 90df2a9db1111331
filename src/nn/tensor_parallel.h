// The boundaries of a tensor-parallel region: the conjugate operators f, g of Shoeybi et al. 2019 (arXiv:1909.08053,
// fig. 3) and, under sequence parallelism, g, g-bar of Korthikanti et al. 2022 (arXiv:2205.05198, fig. 5).
//
//                       tensor parallel     with sequence parallelism
//     enter             identity            all-gather of the tokens
//     enter_backward    all-reduce of dx    reduce-scatter of dx
//     leave             all-reduce of y     reduce-scatter of y
//     leave_backward    identity            all-gather of dy
//
// Outside a region a rank holds num_local_tokens tokens, inside all num_tokens. A rank's result inside is a partial sum
// over the tp ranks. With tp = 1 nothing is communicated.
#pragma once

#include "nn/context.h"

namespace echelon {

/// True where a rank holds only a part of the tokens outside the regions.
[[nodiscard]] inline bool splits_tokens(const LayerOptions& options) {
  return options.sequence_parallel && options.tp > 1;
}

/// All tokens of `local`: the tensor itself, or gathered into the workspace.
[[nodiscard]] Tensor gather_tokens(Context& context, const LayerOptions& options, Tensor local);
/// The same into a tensor of the caller's: copied where there is nothing to gather.
void gather_tokens_into(Context& context, const LayerOptions& options, Tensor full, Tensor local);

/// Where a rank computes its partial sum for `local`: there if it holds all tokens, else in the workspace.
[[nodiscard]] Tensor partial_of(Context& context, const LayerOptions& options, Tensor local);
/// local = this rank's tokens of the sum of all ranks' `partial`.
void sum_partials(Context& context, const LayerOptions& options, Tensor local, Tensor partial);

[[nodiscard]] inline Tensor enter(Context& context, const LayerOptions& options, Tensor x) {
  return gather_tokens(context, options, x);
}
inline void enter_backward(Context& context, const LayerOptions& options, Tensor dx, Tensor partial_dx) {
  sum_partials(context, options, dx, partial_dx);
}
inline void leave(Context& context, const LayerOptions& options, Tensor y, Tensor partial_y) {
  sum_partials(context, options, y, partial_y);
}
[[nodiscard]] inline Tensor leave_backward(Context& context, const LayerOptions& options, Tensor dy) {
  return gather_tokens(context, options, dy);
}

/// The tokens of `full` that this rank holds outside.
[[nodiscard]] Tensor local_tokens(const LayerOptions& options, Tensor full);

/// x = sum or maximum over the tensor-parallel ranks.
void all_reduce_over_tp(Context& context, const LayerOptions& options, Tensor x, ReduceOp op);

}  // namespace echelon
