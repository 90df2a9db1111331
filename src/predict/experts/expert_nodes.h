// Which ranks share a node, where a machine decides whether rows of experts go to other nodes in two hops.
#pragma once

#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

/// With parallelism.ranks_per_node of the machine, where the way to experts asks for nodes.
[[nodiscard]] RunConfig with_nodes_of(RunConfig config, const MachineSpec& machine);

}  // namespace echelon
