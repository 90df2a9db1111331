// What a run says of itself before its first step.
#pragma once

#include "blueprint/blueprint.h"
#include "comm/launch/run_ranks.h"

#include <string>

namespace echelon {

/// One line: the model, the mesh and the microbatches.
[[nodiscard]] std::string description(const Blueprint& blueprint, const RankPlacement& placement);

/// The memory plan of a rank by category, each at its own peak. The allocation has exactly the planned size.
[[nodiscard]] std::string memory_description(const RankBlueprint& rank);

}  // namespace echelon
