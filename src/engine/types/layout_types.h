// The step rehearsed before the run on types in place of numbers (docs/internals/types.md): the same Step runs the same
// programs at the same addresses, on memory that may not be touched, with TypedOps for a backend and TypedMesh for
// peers. So what is checked is the code that will run.
#pragma once

#include "engine/layout_run.h"

namespace echelon {

/// Rehearses on ranks from which everything can be seen. Throws Failure with one sentence that names the layer and the
/// operation where a layout type does not fit: an addend used as if it were the sum, a sum over the wrong ranks, a part
/// read as the whole.
void check_layout_types(const Blueprint& blueprint);

/// The same before a run of the blueprint: of a long step, with no more microbatches than show all there is to see.
void rehearse(const Blueprint& blueprint);

/// The config with four microbatches a pipeline rank if it has more: microbatches are alike, and a long step need not
/// be rehearsed to its end. A schedule that is read from a file stays as it is.
[[nodiscard]] RunConfig for_rehearsal(RunConfig config);

/// On one rank, with something between the step and the types.
void check_layout_types(const Blueprint& blueprint, int rank, const Interpose& interpose = {});

}  // namespace echelon
