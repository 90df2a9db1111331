// Where the ranks of a run are.
#pragma once

#include "comm/launch/run_ranks.h"
#include "spec/config/run_config.h"

namespace echelon {

/// Whether the ranks of a config's run are threads or processes. Throws Error if the launcher started a different
/// number of processes.
[[nodiscard]] RankPlacement placement_of(const RunConfig& config);

/// With parallelism.ranks_per_node of a job on several hosts, where hierarchical dispatch has none.
[[nodiscard]] RunConfig with_nodes(RunConfig config);

}  // namespace echelon
