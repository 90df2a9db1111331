// What a run says of itself before its first step.
#pragma once

#include "blueprint/blueprint.h"
#include "comm/launch/run_ranks.h"
#include "data/dataset_batches.h"

#include <string>

namespace echelon {

/// One line: the model, the mesh and the microbatches.
[[nodiscard]] std::string description(const Blueprint& blueprint, const RankPlacement& placement);

/// One line: tokens and sequences of the data, and how often the whole run reads them.
[[nodiscard]] std::string description(const DatasetBatches& training, const RunConfig& config);

/// Of data shorter than one sequence, what is trained on instead; empty for other data.
[[nodiscard]] std::string short_data_warning(const DatasetBatches& training, const RunConfig& config);

/// The memory plan of a rank by category, each at its own peak. The allocation has exactly the planned size.
[[nodiscard]] std::string memory_description(const RankBlueprint& rank);

}  // namespace echelon
