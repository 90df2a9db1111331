// A pass that computes what backward reads: forward, or a backward pass, which recomputes what forward dropped
// (activation checkpointing, spec/recompute.h). A layer writes such an operation once; the pass says whether it runs
// and where its result is stored.
#pragma once

#include "nn/context.h"

namespace echelon {

enum class Pass : std::uint8_t { forward, backward, backward_input };

struct ComputePass {
  Context& context;
  Stash& stash;
  Pass kind = Pass::forward;

  /// Whether an operation runs in this pass; `is_dropped`: its result is not stored from forward to backward.
  [[nodiscard]] bool runs(bool is_dropped) const { return kind == Pass::forward || is_dropped; }

  /// Room for a result, or the result that forward saved. A dropped result is in the workspace: in the caller's scope
  /// of forward, and again in that of the pass which recomputes it. The exception is what backward_weight reads after
  /// backward_input: that is stored with the gradients which wait for backward_weight.
  [[nodiscard]] Tensor place(const StashEntry& entry, bool is_dropped, DType dtype, const Sizes& sizes) const {
    if (!is_dropped)
      return kind == Pass::forward ? stash.save(entry, dtype, sizes) : stash.saved(entry.owner, entry.which);
    if (kind == Pass::backward_input && entry.last_reader == LastReader::backward_weight)
      return stash.save_gradient(entry, dtype, sizes);
    const Tensor scratch = context.workspace.take(dtype, sizes);
    stash.save_view(entry.owner, entry.which, scratch);
    return scratch;
  }
};

}  // namespace echelon
