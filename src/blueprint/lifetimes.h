// From when to when each buffer of a program lives, read off the order of its actions and their edges.
#pragma once

#include "blueprint/memory_plan.h"
#include "blueprint/rank_trace.h"

namespace echelon {

/// Buffers that live as long as the rank: parameters, gradients, optimizer state, constants, the step's batch.
[[nodiscard]] std::vector<PlannedBuffer> persistent_buffers(const ModelPart& part, std::int64_t num_microbatches);

/// Buffers that live during some actions of `program`: stashes, boundaries, workspace, whole buffers of units.
[[nodiscard]] std::vector<PlannedBuffer> transient_buffers(const Program& program, const ModelPart& part,
                                                           const RankTrace& trace);

}  // namespace echelon
