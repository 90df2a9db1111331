// Which ranks share a node, where rows of experts go to other nodes in two hops and a machine decides it.
#pragma once

#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

/// With parallelism.ranks_per_node of the machine, where hierarchical dispatch has none.
[[nodiscard]] RunConfig with_nodes_of(RunConfig config, const MachineSpec& machine);

}  // namespace echelon
