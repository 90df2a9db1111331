#include "predict/experts/expert_nodes.h"

namespace echelon {

RunConfig with_nodes_of(RunConfig config, const MachineSpec& machine) {
  ParallelConfig& p = config.parallelism;
  const bool is_known = p.expert_dispatch != ExpertDispatch::hierarchical || p.ranks_per_node > 0;
  if (is_known || machine.host || machine.nodes.empty()) return config;
  p.ranks_per_node = machine.nodes.front().num_devices;
  validate(config);
  return config;
}

}  // namespace echelon
