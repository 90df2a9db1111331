// The whole buffers of units whose parameters or gradients are cut over the data axes: from when to when they live,
// read off the program.
#pragma once

#include "blueprint/memory_plan.h"
#include "executor/model_part.h"

namespace echelon {

/// Gathered parameters live from their gather to their release; the gradients of one microbatch from their opening
/// until they are stored (or converted for their reduction); converted ones from their reduction until they are stored.
/// Each is named by the action that begins its life, and its bucket.
[[nodiscard]] std::vector<PlannedBuffer> unit_buffers(const Program& program, const ModelPart& part);

}  // namespace echelon
