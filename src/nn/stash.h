// What layers save of one microbatch from its forward to its backward pass, as views into that microbatch's planned
// slot.
#pragma once

#include "context/row_padding.h"
#include "tensor/stack.h"

#include <map>
#include <utility>

namespace echelon {

/// The last reader of a saved tensor.
enum class LastReader : std::uint8_t { backward_input, backward_weight };

/// A tensor that is saved. `which` tells those of an owner apart; `rows`: whose they are.
struct StashEntry {
  const void* owner = nullptr;
  int which = 0;
  RowKind rows = RowKind::none;
  LastReader last_reader = LastReader::backward_weight;
};

/// A region, and whose rows what was taken of it has.
class StashSlot {
 public:
  explicit StashSlot(Stack stack) : stack_(stack) {}

  [[nodiscard]] Tensor take(RowKind rows, DType dtype, Sizes sizes) {
    rows_.add(rows, sizes.num_elements() * size_of(dtype));
    return stack_.take(dtype, sizes);
  }
  void clear() {
    stack_.rewind(0);
    rows_ = {};
  }
  [[nodiscard]] std::int64_t peak_bytes() const { return stack_.peak_bytes(); }
  [[nodiscard]] const RowBytes& rows() const { return rows_; }

 private:
  Stack stack_;
  RowBytes rows_;
};

class Stash {
 public:
  /// `slot`: what forward saves until backward_weight has read it. `input_slot`: until backward_input has.
  /// `gradient_slot`: what backward_input saves for backward_weight.
  explicit Stash(Stack slot = {}, Stack input_slot = {}, Stack gradient_slot = {})
      : slot_(slot), input_slot_(input_slot), gradient_slot_(gradient_slot) {}

  /// An uninitialised tensor that lives until clear(), or until its last reader has read it.
  Tensor save(const StashEntry& entry, DType dtype, Sizes sizes) {
    return tensors_[{entry.owner, entry.which}] =
               (entry.last_reader == LastReader::backward_weight ? slot_ : input_slot_).take(entry.rows, dtype, sizes);
  }
  Tensor save_gradient(const StashEntry& entry, DType dtype, Sizes sizes) {
    return tensors_[{entry.owner, entry.which}] = gradient_slot_.take(entry.rows, dtype, sizes);
  }
  /// Saves the address of a tensor that is stored elsewhere until the backward pass is over, e.g. the stage's input.
  void save_view(const void* owner, int which, Tensor tensor) { tensors_[{owner, which}] = tensor; }
  /// What was saved. Throws std::out_of_range if nothing was, which is a bug in the layer.
  [[nodiscard]] Tensor saved(const void* owner, int which) const { return tensors_.at({owner, which}); }

  void clear() {
    tensors_.clear();
    slot_.clear();
    input_slot_.clear();
    gradient_slot_.clear();
  }

  [[nodiscard]] const StashSlot& slot() const { return slot_; }
  [[nodiscard]] const StashSlot& input_slot() const { return input_slot_; }
  [[nodiscard]] const StashSlot& gradient_slot() const { return gradient_slot_; }

 private:
  StashSlot slot_, input_slot_, gradient_slot_;
  std::map<std::pair<const void*, int>, Tensor> tensors_;
};

}  // namespace echelon
