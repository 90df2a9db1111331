#include "spec/config/run_config.h"

#include "base/error.h"

#include <limits>

namespace echelon {
MeshShape RunConfig::mesh_shape() const {
  const auto degree = [](std::string_view key, std::int64_t value) {
    require(value >= 1 && value <= std::numeric_limits<int>::max(),
            "parallelism.{} = {} is not a number of ranks (use 1)", key, value);
    return static_cast<int>(value);
  };
  const ParallelConfig& p = parallelism;
  return MeshShape(
      {
          {Axis::dp_replicate, degree("data_parallel_replicate_degree", p.data_parallel_replicate_degree)},
          {Axis::pp, degree("pipeline_parallel_degree", p.pipeline_parallel_degree)},
          {Axis::dp_shard, degree("data_parallel_shard_degree", p.data_parallel_shard_degree)},
          {Axis::cp, degree("context_parallel_degree", p.context_parallel_degree)},
          {Axis::tp, degree("tensor_parallel_degree", p.tensor_parallel_degree)},
      },
      p.order);
}

std::int64_t expert_tensor_degree(const ParallelConfig& p) {
  if (p.expert_tensor_parallel_degree > 0) return p.expert_tensor_parallel_degree;
  return p.sequence_parallel ? 1 : p.tensor_parallel_degree;
}

int num_expert_holders(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const bool are_as_dense = p.expert_parallel_degree == 1 && p.tensor_parallel_degree == 1;
  if (!config.model.mixture.exists() || are_as_dense || expert_tensor_degree(p) > 1) return 1;
  return static_cast<int>(p.data_parallel_shard_degree * p.context_parallel_degree * p.tensor_parallel_degree /
                          p.expert_parallel_degree);
}

std::int64_t RunConfig::data_parallel_degree() const {
  return parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree;
}

std::int64_t RunConfig::num_microbatches() const {
  return training.global_batch_size / (data_parallel_degree() * training.micro_batch_size);
}

}  // namespace echelon
