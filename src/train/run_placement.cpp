#include "train/run_placement.h"

namespace echelon {

RankPlacement placement_of(const RunConfig& config) {
  return place_ranks(config.comm.backend, config.mesh_shape().num_ranks());
}

RunConfig with_nodes(RunConfig config) {
  ParallelConfig& p = config.parallelism;
  if (p.expert_dispatch != ExpertDispatch::hierarchical || p.ranks_per_node > 0) return config;
  const RankPlacement placement = placement_of(config);
  if (placement.num_ranks_on_host == placement.num_ranks) return config;
  p.ranks_per_node = placement.num_ranks_on_host;
  validate(config);
  return config;
}

}  // namespace echelon
