// The passes that form what backward reads: forward itself, and backward once more for what forward dropped
// (spec/recompute.h). A layer writes such an operation down once; here is where its outcome lies in each pass.
#pragma once

#include "nn/context.h"

namespace echelon {

enum class Pass : std::uint8_t { forward, backward, backward_input };

struct Outcome {
  const void* owner = nullptr;
  int which = 0;
  bool is_dropped = false;
  LastReader last_reader = LastReader::backward_input;
};

struct Forming {
  Context& context;
  Stash& stash;
  Pass pass = Pass::forward;

  /// Whether an operation whose outcome is kept, or dropped, runs in this pass.
  [[nodiscard]] bool runs(bool is_dropped) const { return pass == Pass::forward || is_dropped; }

  /// Room for an outcome, or where it lies since forward. What is dropped lies in the workspace: within forward's
  /// scope, and once more within that of the pass that forms it again; but what backward_weight reads after
  /// backward_input lies where gradients wait for it.
  [[nodiscard]] Tensor place(const Outcome& outcome, DType dtype, const Sizes& sizes) const {
    const auto& [owner, which, is_dropped, last_reader] = outcome;
    if (!is_dropped)
      return pass == Pass::forward ? stash.keep(owner, which, dtype, sizes, last_reader) : stash.kept(owner, which);
    if (pass == Pass::backward_input && last_reader == LastReader::backward_weight)
      return stash.keep_gradient(owner, which, dtype, sizes);
    const Tensor scratch = context.workspace.take(dtype, sizes);
    stash.keep_view(owner, which, scratch);
    return scratch;
  }
};

}  // namespace echelon
