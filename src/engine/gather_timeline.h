// The measured steps of a pipeline's ranks on one time axis: each rank knows when its own actions started and ended,
// and rank 0 reports all of them.
#pragma once

#include "blueprint/blueprint.h"
#include "comm/mesh.h"
#include "report/step_trace.h"

namespace echelon {

/// Of the caller's pipeline; every rank of the mesh calls it with the same step. Event::rank is the rank along the
/// pipeline. Ranks of one host have one clock; where there are several (`has_one_clock` is false), each rank's time
/// starts with its own step, which all of them start at the end of the previous step.
[[nodiscard]] Timeline gather_timeline(Mesh& mesh, const Blueprint& blueprint, const StepTrace& trace,
                                       bool has_one_clock);

}  // namespace echelon
