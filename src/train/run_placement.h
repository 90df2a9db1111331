// Where the ranks of a run are.
#pragma once

#include "comm/launch/run_ranks.h"
#include "spec/config/run_config.h"

#include <span>
#include <string>

namespace echelon {

/// Whether the ranks of a config's run are threads or processes. Throws Error if the launcher started a different
/// number of processes.
[[nodiscard]] RankPlacement placement_of(const RunConfig& config);

/// With parallelism.ranks_per_node of a job on several hosts, where experts exchange rows in two hops or may, and no
/// key says it. All processes must call it. Throws Error for hosts that hierarchical dispatch does not allow.
[[nodiscard]] RunConfig with_nodes(RunConfig config);
/// The same on these hosts of the ranks.
[[nodiscard]] RunConfig with_nodes(RunConfig config, std::span<const int> hosts);

/// Of what with_nodes returned: how rows go to experts on several nodes, or why they go directly; empty: on none.
[[nodiscard]] std::string dispatch_description(const RunConfig& config);
[[nodiscard]] std::string dispatch_description(const RunConfig& config, std::span<const int> hosts);

}  // namespace echelon
