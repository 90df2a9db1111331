#include "plan/space/single_changes.h"

#include "base/error.h"
#include "plan/space/space.h"
#include "predict/experts/expert_nodes.h"
#include "spec/config/pipeline.h"
#include "spec/machine/fastest_format.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view tp_key = "parallelism.tensor_parallel_degree",
                           pp_key = "parallelism.pipeline_parallel_degree",
                           cp_key = "parallelism.context_parallel_degree",
                           method_key = "parallelism.context_parallel_method",
                           ulysses_key = "parallelism.context_parallel_ulysses_degree",
                           sharding_key = "parallelism.data_parallel_shard_degree",
                           experts_key = "parallelism.expert_parallel_degree",
                           features_key = "parallelism.expert_tensor_parallel_degree";

struct Candidate {
  std::string_view key;
  RunConfig config;
};

/// Collects copies of a config with one key changed.
class Candidates {
 public:
  explicit Candidates(const RunConfig& config) : config_(config) {}

  template <class Change>
  void add(std::string_view key, const Change& change) {
    all_.push_back({key, config_});
    change(all_.back().config);
  }
  [[nodiscard]] std::vector<Candidate>& all() { return all_; }

 private:
  const RunConfig& config_;
  std::vector<Candidate> all_;
};

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= number; ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

void add_degrees(const RunConfig& config, Candidates& candidates) {
  const std::int64_t ranks = config.mesh_shape().num_ranks(), dp = config.data_parallel_degree();
  for (const std::int64_t degree : divisors_of(ranks)) {
    candidates.add(tp_key, [&](RunConfig& c) { c.parallelism.tensor_parallel_degree = degree; });
    candidates.add(pp_key, [&](RunConfig& c) { c.parallelism.pipeline_parallel_degree = degree; });
    candidates.add(cp_key, [&](RunConfig& c) { c.parallelism.context_parallel_degree = degree; });
  }
  for (const auto method :
       {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses, ContextMethod::ulysses_ring})
    candidates.add(method_key, [&](RunConfig& c) { c.parallelism.context_parallel_method = method; });
  for (const std::int64_t degree : divisors_of(config.parallelism.context_parallel_degree))
    candidates.add(ulysses_key, [&](RunConfig& c) { c.parallelism.context_parallel_ulysses_degree = degree; });
  const std::int64_t num_experts = config.model.has_experts() ? config.model.mixture.num_experts : 1;
  for (const std::int64_t degree : divisors_of(num_experts))
    candidates.add(experts_key, [&](RunConfig& c) { c.parallelism.expert_parallel_degree = degree; });
  if (config.model.has_experts()) {
    for (const std::int64_t degree : divisors_of(config.parallelism.tensor_parallel_degree))
      candidates.add(features_key, [&](RunConfig& c) { c.parallelism.expert_tensor_parallel_degree = degree; });
    for (const auto dispatch : {ExpertDispatch::direct, ExpertDispatch::hierarchical, ExpertDispatch::all_gather})
      candidates.add("parallelism.expert_dispatch", [&](RunConfig& c) { c.parallelism.expert_dispatch = dispatch; });
    for (const double factor : {0.5, 2.0})
      candidates.add("moe.dispatch_bound", [&](RunConfig& c) { c.moe.dispatch_bound *= factor; });
  }
  for (const std::int64_t shards : divisors_of(dp))
    candidates.add(sharding_key, [&](RunConfig& c) {
      c.parallelism.data_parallel_shard_degree = shards;
      c.parallelism.data_parallel_replicate_degree = dp / shards;
    });
  for (const std::int64_t size : divisors_of(config.training.global_batch_size / dp))
    candidates.add("training.micro_batch_size", [&](RunConfig& c) { c.training.micro_batch_size = size; });
}

void add_sharding(const RunConfig& config, Candidates& candidates) {
  for (const std::int64_t level : {1, 2, 3})
    candidates.add("parallelism.zero_level", [&](RunConfig& c) { c.parallelism.zero_level = level; });
  for (const auto reshard : {ReshardAfterForward::never, ReshardAfterForward::microbatch, ReshardAfterForward::step})
    candidates.add("parallelism.reshard_after_forward",
                   [&](RunConfig& c) { c.parallelism.reshard_after_forward = reshard; });
  const std::int64_t depth = config.parallelism.prefetch_depth;
  for (const std::int64_t other : {depth - 1, depth + 1})
    if (other >= 1)
      candidates.add("parallelism.prefetch_depth", [&](RunConfig& c) { c.parallelism.prefetch_depth = other; });
  candidates.add("parallelism.sequence_parallel",
                 [&](RunConfig& c) { c.parallelism.sequence_parallel = !config.parallelism.sequence_parallel; });
}

void add_pipelines(const RunConfig& config, Candidates& candidates) {
  const ParallelConfig& p = config.parallelism;
  if (p.pipeline_parallel_degree == 1 || !p.pipeline_parallel_schedule_csv.empty()) return;
  for (const ScheduleEntry& entry : all_schedules())
    candidates.add("parallelism.pipeline_parallel_schedule",
                   [&](RunConfig& c) { c.parallelism.pipeline_parallel_schedule = entry.kind; });
  const ScheduleEntry& entry = entry_of(p.pipeline_parallel_schedule);
  const std::int64_t now = num_pipeline_stages(config) / p.pipeline_parallel_degree,
                     most = std::min<std::int64_t>(entry.most_virtual,
                                                   (config.model.num_hidden_layers + 2) / p.pipeline_parallel_degree);
  for (std::int64_t stages = entry.least_virtual; stages <= most; ++stages)
    if (stages != now)
      candidates.add("parallelism.virtual_stages", [&](RunConfig& c) { c.parallelism.virtual_stages = stages; });
}

void add_recomputation(const RunConfig& config, Candidates& candidates) {
  for (const BlockOperations& operations : recomputed_sets(config.model))
    candidates.add("training.recompute", [&](RunConfig& c) { c.training.recompute = operations; });
  if (config.training.recompute_method != RecomputeMethod::block) return;
  for (std::int64_t layers = 1; layers <= config.model.num_hidden_layers; ++layers)
    candidates.add("training.recompute_num_layers", [&](RunConfig& c) { c.training.recompute_num_layers = layers; });
}

/// The axes of more than one rank in every sequence, at the places that they have.
void add_axis_orders(const RunConfig& config, Candidates& candidates) {
  const MeshShape mesh = config.mesh_shape();
  const std::vector<Axis> now(config.parallelism.order.axes().begin(), config.parallelism.order.axes().end());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (mesh.degree(now[i]) > 1) places.push_back(i);
  std::vector<std::size_t> sequence = places;
  while (std::next_permutation(sequence.begin(), sequence.end())) {
    std::vector<Axis> order = now;
    for (std::size_t i = 0; i < places.size(); ++i) order[places[i]] = now[sequence[i]];
    candidates.add("parallelism.order", [&](RunConfig& c) { c.parallelism.order = AxisOrder(order); });
  }
}

/// The data-parallel degrees that go with the others. Shards and replicas keep their roles.
void take_up_ranks(std::int64_t num_ranks, ParallelConfig& p) {
  const std::int64_t of_model = p.tensor_parallel_degree * p.pipeline_parallel_degree * p.context_parallel_degree,
                     dp = std::max<std::int64_t>(1, num_ranks / of_model);
  const bool replicates_alone = p.data_parallel_shard_degree == 1 && p.data_parallel_replicate_degree > 1;
  if (replicates_alone) {
    p.data_parallel_replicate_degree = dp;
  } else if (dp % p.data_parallel_replicate_degree == 0) {
    p.data_parallel_shard_degree = dp / p.data_parallel_replicate_degree;
  } else {
    p.data_parallel_replicate_degree = 1;
    p.data_parallel_shard_degree = dp;
  }
}

void settle_context(std::string_view key, ParallelConfig& p) {
  if (p.context_parallel_degree == 1) p.context_parallel_load_balancer = LoadBalancer::headtail;
  if (p.context_parallel_degree == 1) p.context_parallel_method = ContextMethod::ring;
  const bool has_degree = p.context_parallel_method == ContextMethod::ulysses_ring;
  if (!has_degree || key == cp_key || key == ulysses_key) p.hierarchical_context_parallel_sizes = {};
  if (!has_degree) p.context_parallel_ulysses_degree = 0;
  const bool has_no_degree = p.hierarchical_context_parallel_sizes.empty() && p.context_parallel_ulysses_degree == 0;
  const std::vector<std::int64_t> degrees = divisors_of(p.context_parallel_degree);
  if (has_degree && has_no_degree && degrees.size() > 1) p.context_parallel_ulysses_degree = degrees[1];
}

/// Keys that only go with another value of the changed one.
void settle(std::string_view key, const RunConfig& was, RunConfig& config) {
  ParallelConfig& p = config.parallelism;
  TrainingConfig& t = config.training;
  settle_context(key, p);
  if (key == tp_key || key == pp_key || key == cp_key) take_up_ranks(was.mesh_shape().num_ranks(), p);
  if (p.tensor_parallel_degree == 1) p.sequence_parallel = false;
  if (p.zero_level == 0 && p.data_parallel_shard_degree > 1) p.zero_level = 1;
  if (p.zero_level != 3) p.reshard_after_forward = ReshardAfterForward::microbatch;
  if (p.zero_level != 3) p.prefetch_depth = 1;
  const ScheduleEntry& entry = entry_of(p.pipeline_parallel_schedule);
  if (p.virtual_stages > 0)
    p.virtual_stages = std::clamp<std::int64_t>(p.virtual_stages, entry.least_virtual, entry.most_virtual);
  const bool changes_stages =
      key == pp_key || key == "parallelism.virtual_stages" || key == "parallelism.pipeline_parallel_schedule";
  if (changes_stages) p.pipeline_parallel_layout = {};
  if (t.recompute.empty()) t.recompute_method = RecomputeMethod::uniform;
  if (t.recompute.empty()) t.recompute_num_layers = 1;
  if (t.dtype != DType::float16) config.grad_scaler = {};
  if (t.dtype != DType::bfloat16) config.optimizer.store_param_remainders = false;
  if (t.dtype != DType::float32) t.float32_matmul_precision = MatmulPrecision::highest;
}

bool is_accepted(const RunConfig& config, std::int64_t num_ranks) {
  try {
    require_legal(config);
    return config.mesh_shape().num_ranks() == num_ranks;
  } catch (const Error&) {
    return false;
  }
}

/// Of hierarchical dispatch on a host, no nodes are known.
bool has_nodes(const RunConfig& config, const MachineSpec& machine) {
  try {
    (void)ep_on_node(with_nodes_of(config, machine));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<SingleChange> single_changes(const RunConfig& config, const MachineSpec& machine) {
  Candidates candidates(config);
  add_degrees(config, candidates);
  add_sharding(config, candidates);
  add_pipelines(config, candidates);
  add_recomputation(config, candidates);
  if (!machine.host) add_axis_orders(config, candidates);
  for (const DType dtype : formats_by_speed(machine))
    if (dtype != DType::float64) candidates.add("training.dtype", [&](RunConfig& c) { c.training.dtype = dtype; });

  std::vector<SingleChange> all;
  const std::int64_t num_ranks = config.mesh_shape().num_ranks();
  for (Candidate& each : candidates.all()) {
    settle(each.key, config, each.config);
    std::vector<KeyChange> changes = config_changes(config, each.config);
    const auto chosen = std::find_if(changes.begin(), changes.end(), [&](const auto& c) { return c.key == each.key; });
    if (chosen == changes.end() || !is_accepted(each.config, num_ranks) || !has_nodes(each.config, machine)) continue;
    SingleChange change = {.change = *chosen, .config = std::move(each.config)};
    changes.erase(chosen);
    change.with = std::move(changes);
    all.push_back(std::move(change));
  }
  return all;
}

}  // namespace echelon
