#include "plan/space/choices.h"

#include "nn/head_split.h"
#include "predict/experts/expert_nodes.h"

#include <algorithm>

namespace echelon {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::int64_t ranks_of_node(const PlanRequest& request) {
  const MachineSpec& machine = request.machine;
  if (const std::int64_t fixed = request.base.parallelism.ranks_per_node; fixed > 0) return fixed;
  const std::int64_t ranks = machine.nodes.front().num_devices;
  const bool are_alike =
      std::ranges::all_of(machine.nodes, [&](const NodeSpec& node) { return node.num_devices == ranks; });
  return machine.host || !are_alike ? 0 : ranks;
}

void require_legal(const RunConfig& config) {
  validate(config);
  const int tp = static_cast<int>(config.parallelism.tensor_parallel_degree);
  validate_tensor_parallel(config.model, tp);
  if (const int u = key_exchange(config.parallelism).head_ranks; u > 1)
    validate_head_exchange(config.model, tp, {.key = "parallelism.context_parallel_method", .num_ranks = u});
}

ExpertDispatch dispatch_of(const PlanShape& shape) {
  switch (shape.ranks_per_node) {
    case 0: return ExpertDispatch::direct;
    case 1: return ExpertDispatch::all_gather;
    default: return ExpertDispatch::hierarchical;
  }
}

void set_shape(RunConfig& config, const PlanShape& shape) {
  config.parallelism.tensor_parallel_degree = shape.tp;
  config.parallelism.sequence_parallel = shape.sequence_parallel;
  config.parallelism.pipeline_parallel_degree = shape.pp;
  config.parallelism.context_parallel_degree = shape.cp;
  config.parallelism.context_parallel_method = shape.exchange.method;
  config.parallelism.context_parallel_ulysses_degree =
      shape.exchange.method == ContextMethod::ulysses_ring ? shape.exchange.head_ranks : 0;
  config.parallelism.context_parallel_load_balancer = shape.balancer;
  config.parallelism.hierarchical_context_parallel_sizes = {};
  config.parallelism.expert_parallel_degree = shape.ep;
  const bool are_as_dense = config.model.has_experts() && shape.divides_experts_as_dense;
  config.parallelism.expert_tensor_parallel_degree = are_as_dense && shape.sequence_parallel ? shape.tp
                                                     : shape.etp > 1                         ? shape.etp
                                                                                             : 0;
  if (config.model.has_experts()) {
    ParallelConfig& p = config.parallelism;
    const ExpertDispatch dispatch = dispatch_of(shape);
    if (dispatch == ExpertDispatch::hierarchical) p.ranks_per_node = shape.ranks_per_node;
    const bool is_open = p.expert_dispatch == ExpertDispatch::automatic && dispatch == ExpertDispatch::direct &&
                         !asks_for_nodes(p) && p.ranks_per_node == 0;
    if (!is_open) p.expert_dispatch = dispatch;
    config.moe.dispatch_bound = shape.dispatch_bound;
  }
  config.parallelism.data_parallel_shard_degree = shards_of_experts(shape);
  config.parallelism.data_parallel_replicate_degree = shape.dp / shards_of_experts(shape);
  config.training.micro_batch_size = shape.micro_batch_size;
}

RunConfig without_choices(RunConfig config) {
  config.training.micro_batch_size = 1;
  config.training.recompute = {};
  config.training.recompute_method = RecomputeMethod::uniform;
  config.training.recompute_num_layers = 1;
  config.training.mlp_chunk_tokens = 0;  // contradicts recompute = none
  const ParallelConfig defaults;
  config.parallelism.zero_level = defaults.zero_level;
  config.parallelism.reshard_after_forward = defaults.reshard_after_forward;
  config.parallelism.prefetch_depth = defaults.prefetch_depth;
  config.parallelism.pipeline_parallel_schedule = defaults.pipeline_parallel_schedule;
  config.parallelism.virtual_stages = defaults.virtual_stages;
  config.parallelism.pipeline_parallel_layout = {};
  config.parallelism.order = {};
  return config;
}

void set_pipeline(RunConfig& config, const PlanPipeline& pipeline) {
  config.parallelism.pipeline_parallel_schedule = pipeline.schedule;
  config.parallelism.virtual_stages = pipeline.num_virtual;
  config.parallelism.pipeline_parallel_layout = pipeline.layout;
}

RunConfig config_of(const PlanRequest& request, const PlanChoice& choice) {
  RunConfig config = without_choices(request.base);
  set_shape(config, choice.shape);
  set_pipeline(config, choice.pipeline);
  config.training.recompute = choice.recompute.operations;
  config.training.mlp_chunk_tokens = request.base.training.mlp_chunk_tokens;
  if (choice.recompute.num_blocks > 0) {
    config.training.recompute_method = RecomputeMethod::block;
    config.training.recompute_num_layers = choice.recompute.num_blocks;
  }
  config.parallelism.data_parallel_replicate_degree = choice.data.replicate;
  config.parallelism.data_parallel_shard_degree = choice.data.shard;
  config.parallelism.zero_level = choice.data.zero_level;
  config.parallelism.reshard_after_forward = choice.data.reshard;
  config.parallelism.prefetch_depth = choice.data.prefetch_depth;
  config.parallelism.order = choice.order;
  return config;
}

}  // namespace echelon
