#include "plan/search/config_plan.h"

#include "base/error.h"
#include "predict/experts/expert_nodes.h"
#include "predict/experts/read_expert_load.h"
#include "spec/config/config_reader.h"
#include "spec/config/pipeline.h"

#include <algorithm>

namespace echelon {
namespace {

PlanChoice choice_of(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const TrainingConfig& t = config.training;
  const int num_stages = num_pipeline_stages(config);
  PlanPipeline pipeline = {p.pipeline_parallel_schedule, num_stages / p.pipeline_parallel_degree,
                           p.pipeline_parallel_layout};
  for (const StageLayers& stage : stage_layout(config.model.num_hidden_layers, num_stages, p.pipeline_parallel_layout))
    pipeline.most_layers = std::max(pipeline.most_layers, stage.num_layers);
  return {.shape = {p.tensor_parallel_degree, p.sequence_parallel, p.pipeline_parallel_degree,
                    config.data_parallel_degree(), t.micro_batch_size, config.num_microbatches(),
                    p.context_parallel_degree, key_exchange(p), p.expert_parallel_degree, num_feature_ranks(p),
                    !config.model.has_experts() || divides_experts_as_dense(p), ep_on_node(config),
                    config.moe.dispatch_bound, p.context_parallel_load_balancer},
          .pipeline = std::move(pipeline),
          .recompute = {t.recompute, t.recompute_method == RecomputeMethod::block ? t.recompute_num_layers : 0},
          .data = {p.data_parallel_replicate_degree, p.data_parallel_shard_degree, p.zero_level,
                   p.reshard_after_forward, p.prefetch_depth},
          .order = p.order};
}

}  // namespace

RunConfig read_asked_config(const std::string& path, const PlanQuestion& question) {
  ConfigSource source = {.path = path, .arguments = question.settings, .read_model = question.read_model};
  if (question.global_batch_size)
    source.arguments.push_back(fmt::format("--training.global_batch_size={}", *question.global_batch_size));
  if (question.seq_len) source.arguments.push_back(fmt::format("--training.seq_len={}", *question.seq_len));
  RunConfig config = read_run_config(source);
  config.expert_load = read_expert_load(question.expert_load, config);
  const std::int64_t num_ranks = config.mesh_shape().num_ranks();
  require(!question.gpus || *question.gpus == num_ranks,
          "--gpus={} is not the number of devices in {}, whose degrees make {} (use {})", question.gpus.value_or(0),
          path, num_ranks, num_ranks);
  return config;
}

Plan plan_of(const RunConfig& config, const PlanRequest& request) {
  const RunConfig placed = with_nodes_of(config, request.machine);
  Plan plan = {choice_of(placed), placed, {}};
  // As in train.
  if (plan.config.training.device == DeviceChoice::automatic)
    plan.config.training.device = request.base.training.device;
  plan.outcome = simulate(Blueprint(plan.config), request.machine);
  plan.outcome.timeline = {};
  return plan;
}

}  // namespace echelon
