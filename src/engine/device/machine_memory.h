// Whether a run fits into this machine: asked before anything is allocated, since a system that runs out of memory ends
// programs without a word.
#pragma once

#include "blueprint/blueprint.h"

namespace echelon {

/// Throws Error if the arenas of the ranks on this machine together are larger than `machine_bytes` (0: unknown,
/// anything goes).
void require_memory(const Blueprint& blueprint, int num_ranks_on_host, std::int64_t machine_bytes);

}  // namespace echelon
