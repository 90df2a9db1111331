// A gate of tokens, such as that of Qwen2-MoE's shared expert: a matmul of x with one output z, whose sigmoid is the
// weight of a token. It is computed as a router with one expert (ops/operations/mixture/router.h), which every token
// has:
//
//     z = x wgate^T,  g = sigmoid(z)        rows[n] = g[n] activated[n], before the matmul at the end of the branch
#pragma once

#include "nn/context.h"
#include "nn/linear.h"

namespace echelon {

/// The matmul: weight `name` [1, hidden_size]. Tensor-parallel ranks have all tokens and a part of the features of
/// each, so that their gradients are addends, as those of a router.
[[nodiscard]] Linear token_gate(const LayerOptions& options, const std::string& name);

/// rows [N, F] *= g of the logits z [N, 1], which have accumulate_dtype.
void weight_by_gate(Context& context, Tensor logits, Tensor rows);

/// In place: dy, the gradient of rows, -> that of what was weighted, and activated -> rows. dlogits [N, 1].
struct GateGradients {
  Tensor dy, activated, dlogits;
};
void gate_backward(Context& context, Tensor logits, const GateGradients& of);

}  // namespace echelon
