// A pass that computes what backward reads: forward, or a backward pass, which recomputes what forward dropped
// (activation checkpointing, spec/recompute.h). A layer writes such an operation once; the pass says whether it runs
// and where its result is stored.
#pragma once

#include "nn/context.h"

namespace echelon {

enum class Pass : std::uint8_t { forward, backward, backward_input };

/// A result that backward reads. `which` tells the results of an owner apart.
struct StashEntry {
  const void* owner = nullptr;
  int which = 0;
  bool is_dropped = false;
  LastReader last_reader = LastReader::backward_input;
};

struct ComputePass {
  Context& context;
  Stash& stash;
  Pass kind = Pass::forward;

  /// Whether an operation runs in this pass; `is_dropped`: its result is not stored from forward to backward.
  [[nodiscard]] bool runs(bool is_dropped) const { return kind == Pass::forward || is_dropped; }

  /// Room for a result, or the result that forward saved. A dropped result is in the workspace: in the caller's scope
  /// of forward, and again in that of the pass which recomputes it. The exception is what backward_weight reads after
  /// backward_input: that is stored with the gradients which wait for backward_weight.
  [[nodiscard]] Tensor place(const StashEntry& entry, DType dtype, const Sizes& sizes) const {
    const auto& [owner, which, is_dropped, last_reader] = entry;
    if (!is_dropped)
      return kind == Pass::forward ? stash.save(owner, which, dtype, sizes, last_reader) : stash.saved(owner, which);
    if (kind == Pass::backward_input && last_reader == LastReader::backward_weight)
      return stash.save_gradient(owner, which, dtype, sizes);
    const Tensor scratch = context.workspace.take(dtype, sizes);
    stash.save_view(owner, which, scratch);
    return scratch;
  }
};

}  // namespace echelon
