// How far away the operands of a step are: what a rank has touched since it last used them.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/machine/host_time.h"

#include <vector>

namespace echelon {

/// By action of a program and operation of its trace: what it takes longer than on operands out of the closest caches.
/// Where ranks take turns on a core, what the others touch counts too.
[[nodiscard]] std::vector<std::vector<CoreSeconds>> distance_seconds(const Blueprint& blueprint,
                                                                     const RankBlueprint& rank, ProgramKind kind,
                                                                     HostTime& time);

}  // namespace echelon
