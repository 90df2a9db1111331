// Rehearses the step before the run on types in place of values (docs/internals/types.md). The same Step runs the same
// programs at the same addresses, on memory that must not be touched, with TypedOps as backend and TypedMesh as
// transport. So the checked code is the code that will run.
#pragma once

#include "engine/layout_run.h"

namespace echelon {

/// Rehearses representative ranks. Throws Failure with one sentence that names the layer and the operation where a
/// layout type does not fit: an addend used as if it were the sum, a sum over the wrong ranks, a part read as the
/// whole.
void check_layout_types(const Blueprint& blueprint);

/// The same for a run of the blueprint, with no more microbatches than needed, after the proof that what layers send
/// cannot deadlock (check_transfers).
void rehearse(const Blueprint& blueprint);

/// The config with four microbatches a pipeline rank if it has more: microbatches are identical, so a long step need
/// not be rehearsed to its end. A schedule that is read from a file stays as it is.
[[nodiscard]] RunConfig for_rehearsal(RunConfig config);

/// On one rank, with something between the step and the types.
void check_layout_types(const Blueprint& blueprint, int rank, const Interpose& interpose = {});

}  // namespace echelon
