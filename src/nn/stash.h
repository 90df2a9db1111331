// What layers keep of one microbatch from its forward to its backward pass, as views into that microbatch's planned slot.
#pragma once

#include "tensor/stack.h"

#include <map>
#include <utility>

namespace echelon {

class Stash {
 public:
  /// `slot` holds what forward keeps; `gradient_slot` what backward_input keeps for a later backward_weight.
  explicit Stash(Stack slot = {}, Stack gradient_slot = {}) : slot_(slot), gradient_slot_(gradient_slot) {}

  /// An uninitialised tensor that lives until clear(). `which` tells an owner's tensors apart.
  Tensor keep(const void* owner, int which, DType dtype, Sizes sizes) { return tensors_[{owner, which}] = slot_.take(dtype, sizes); }
  Tensor keep_gradient(const void* owner, int which, DType dtype, Sizes sizes) { return tensors_[{owner, which}] = gradient_slot_.take(dtype, sizes); }
  /// Remembers a tensor that lives elsewhere until the backward pass is over, e.g. the stage's input.
  void keep_view(const void* owner, int which, Tensor tensor) { tensors_[{owner, which}] = tensor; }
  /// What was kept. Throws std::out_of_range if nothing was: a bug of ours.
  [[nodiscard]] Tensor kept(const void* owner, int which) const { return tensors_.at({owner, which}); }

  void clear() {
    tensors_.clear();
    slot_.rewind(0);
    gradient_slot_.rewind(0);
  }

  [[nodiscard]] const Stack& slot() const { return slot_; }
  [[nodiscard]] const Stack& gradient_slot() const { return gradient_slot_; }
  /// For a fused backward that is written as its two halves: exchanges the gradient slot, returning the old one.
  Stack exchange_gradient_slot(Stack slot) { return std::exchange(gradient_slot_, slot); }

 private:
  Stack slot_, gradient_slot_;
  std::map<std::pair<const void*, int>, Tensor> tensors_;
};

}  // namespace echelon
