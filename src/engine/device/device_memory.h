// Whether a run fits into the memory of its devices: asked when the ranks are connected, since libraries have taken
// theirs by then, before the plan's is allocated.
#pragma once

#include "backend/backend.h"
#include "blueprint/blueprint.h"

namespace echelon {

/// Throws Error, on all ranks the same, if the arenas of the ranks that share a device together are larger than its
/// memory (0: unknown, anything goes). `facts`: of this rank's device, with the memory that is free there. Collective
/// over the host's mesh.
void require_device_memory(const Blueprint& blueprint, const DeviceFacts& facts, Mesh& host);

}  // namespace echelon
