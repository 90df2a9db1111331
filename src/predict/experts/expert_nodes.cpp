#include "predict/experts/expert_nodes.h"

#include "base/error.h"

namespace echelon {

RunConfig with_nodes_of(RunConfig config, const MachineSpec& machine) {
  ParallelConfig& p = config.parallelism;
  const bool asks = asks_for_nodes(p), is_machine = !machine.host && !machine.nodes.empty();
  if (!asks || !is_machine) return config;
  p.ranks_per_node = machine.nodes.front().num_devices;
  if (ep_on_node(config) == 0) {
    require(p.expert_dispatch == ExpertDispatch::automatic,
            "parallelism.expert_dispatch = 'hierarchical' sends the rows of {} ranks over nodes with several of them "
            "each, and the machine has {} devices on a node (use 'direct')",
            p.expert_parallel_degree, p.ranks_per_node);
    p.ranks_per_node = 0;
  }
  validate(config);
  return config;
}

}  // namespace echelon
