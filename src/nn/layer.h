// A layer with hand-written gradients. There is no autograd tape: forward saves what backward needs in the stash.
//
//     y = x w^T           forward:         save x
//     dx = dy w           backward_input:  save dy        (=  : a gradient of an activation has one writer)
//     dw += dy^T x        backward_weight                 (+= : a gradient of a weight accumulates over microbatches)
//
// The weight gradient is a call of its own, so that a schedule may delay it (zero-bubble schedules, Qi et al. 2023,
// arXiv:2401.10241).
#pragma once

#include "nn/context.h"
#include "nn/param.h"

#include <vector>

namespace echelon {

/// x, y, dx, dy are [num_local_tokens, hidden_size]. The first layer of a model has no x and dx, the last no y and dy:
/// those tensors are empty.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The parameters it owns, in a fixed order. A tied weight that it borrows is not among them.
  [[nodiscard]] virtual std::vector<Param*> params() = 0;

  /// x must stay readable until the backward pass of this microbatch is over, or be recomputed (DecoderBlock).
  virtual void forward(Context& context, Tensor x, Tensor y, Stash& stash) const = 0;
  /// dx = gradient of x. Saves in the stash what backward_weight needs, also in place of what forward saved. The caller
  /// may overwrite dy afterwards.
  virtual void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const = 0;
  /// Adds to the gradients of the parameters. Once per microbatch, after backward_input.
  virtual void backward_weight(Context& context, Stash& stash) = 0;
  /// Both at once, the same values with less memory: gradients may overwrite what forward saved.
  virtual void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) = 0;
};

}  // namespace echelon
