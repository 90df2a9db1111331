// What layers save of one microbatch from its forward to its backward pass, as views into that microbatch's planned
// slot.
#pragma once

#include "tensor/stack.h"

#include <map>
#include <utility>

namespace echelon {

/// The last reader of a saved tensor.
enum class LastReader : std::uint8_t { backward_input, backward_weight };

class Stash {
 public:
  /// `slot`: what forward saves until backward_weight has read it. `input_slot`: until backward_input has.
  /// `gradient_slot`: what backward_input saves for backward_weight.
  explicit Stash(Stack slot = {}, Stack input_slot = {}, Stack gradient_slot = {})
      : slot_(slot), input_slot_(input_slot), gradient_slot_(gradient_slot) {}

  /// An uninitialised tensor that lives until clear(), or until its last reader has read it. `which` tells an owner's
  /// tensors apart.
  Tensor save(const void* owner, int which, DType dtype, Sizes sizes,
              LastReader last_reader = LastReader::backward_weight) {
    return tensors_[{owner, which}] =
               (last_reader == LastReader::backward_weight ? slot_ : input_slot_).take(dtype, sizes);
  }
  Tensor save_gradient(const void* owner, int which, DType dtype, Sizes sizes) {
    return tensors_[{owner, which}] = gradient_slot_.take(dtype, sizes);
  }
  /// Saves the address of a tensor that is stored elsewhere until the backward pass is over, e.g. the stage's input.
  void save_view(const void* owner, int which, Tensor tensor) { tensors_[{owner, which}] = tensor; }
  /// What was saved. Throws std::out_of_range if nothing was, which is a bug in the layer.
  [[nodiscard]] Tensor saved(const void* owner, int which) const { return tensors_.at({owner, which}); }

  void clear() {
    tensors_.clear();
    slot_.rewind(0);
    input_slot_.rewind(0);
    gradient_slot_.rewind(0);
  }

  [[nodiscard]] const Stack& slot() const { return slot_; }
  [[nodiscard]] const Stack& input_slot() const { return input_slot_; }
  [[nodiscard]] const Stack& gradient_slot() const { return gradient_slot_; }
  /// For a fused backward that is written as its two halves: exchanges the gradient slot, returning the old one.
  Stack exchange_gradient_slot(Stack slot) { return std::exchange(gradient_slot_, slot); }

 private:
  Stack slot_, input_slot_, gradient_slot_;
  std::map<std::pair<const void*, int>, Tensor> tensors_;
};

}  // namespace echelon
