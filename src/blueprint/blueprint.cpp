#include "blueprint/blueprint.h"

#include "base/error.h"
#include "blueprint/lifetimes.h"
#include "blueprint/padding_rows.h"
#include "blueprint/stage_units.h"
#include "nn/head_split.h"
#include "spec/config/pipeline.h"
#include "spec/groups.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

Schedule validated_schedule(const RunConfig& config) {
  validate(config);
  return pipeline_schedule(config);
}

KeepsGathered keeps_gathered(ReshardAfterForward reshard) {
  switch (reshard) {
    case ReshardAfterForward::never: return KeepsGathered::for_backward;
    case ReshardAfterForward::microbatch: return KeepsGathered::for_next_pass;
    case ReshardAfterForward::step: return KeepsGathered::for_step;
  }
  throw Failure("unknown way of resharding");
}

void set_sharding(LoweringOptions& options, const RunConfig& config) {
  const ShardOptions sharding = shard_options(config);
  options.gathers_parameters = sharding.level == 1 || sharding.level == 2;
  options.shards_gradients = sharding.shards_gradients();
  options.shards_parameters = sharding.shards_parameters();
  options.reduces_parts = sharding.reduces_parts;
  options.converts_gradients = sharding.converts_gradients();
  options.keeps_gathered = keeps_gathered(config.parallelism.reshard_after_forward);
  options.prefetch_depth = static_cast<int>(config.parallelism.prefetch_depth);
}

std::vector<StageShape> stage_shapes(const RunConfig& config, const Schedule& schedule) {
  const std::vector<StageLayers> layout =
      stage_layout(config.model.num_hidden_layers, schedule.num_stages, config.parallelism.pipeline_parallel_layout);
  std::map<UnitKind, bool> known;
  const auto sums_replicas = [&](const UnitKind& kind) {
    const auto [of_kind, is_new] = known.try_emplace(kind_of_state(kind));
    if (is_new) {
      ModelPart part = make_unit_part(config, 0, kind);
      of_kind->second = unit_of(part, kind).sums_replicas();
    }
    return of_kind->second;
  };
  const TiedWeight tied = tied_weight_of(config.model, schedule.rank_of_stage);
  return stage_shapes(units_of(layout, config.model, layer_options(config, 0).recompute, tied), sums_replicas);
}

std::vector<PlannedBuffer> both(std::vector<PlannedBuffer> a, const std::vector<PlannedBuffer>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Ranks of context parallelism that exchange heads.
void validate_heads_of_context(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const int u = key_exchange(p).head_ranks, cp = static_cast<int>(p.context_parallel_degree);
  if (u == 1) return;
  const bool is_whole = p.context_parallel_method == ContextMethod::ulysses,
             is_list = !p.hierarchical_context_parallel_sizes.empty();
  validate_head_exchange(config.model, static_cast<int>(p.tensor_parallel_degree),
                         {.key = is_whole  ? "parallelism.context_parallel_degree"
                                 : is_list ? "parallelism.hierarchical_context_parallel_sizes[0]"
                                           : "parallelism.context_parallel_ulysses_degree",
                          .num_ranks = u,
                          .divides = is_whole ? 0 : cp});
}

}  // namespace

Blueprint::Blueprint(const RunConfig& config) : Blueprint(config, validated_schedule(config)) {}

Blueprint::Blueprint(RunConfig config, Schedule schedule) : config_(std::move(config)), schedule_(std::move(schedule)) {
  validate(config_);
  validate_tensor_parallel(config_.model, static_cast<int>(config_.parallelism.tensor_parallel_degree));
  validate_heads_of_context(config_);
  mesh_ = config_.mesh_shape();
  lowering_.fill(lowering_options(config_, schedule_.rank_of_stage, stage_shapes(config_, schedule_)));
  lowering_[static_cast<std::size_t>(ProgramKind::evaluation)].trains = false;
  lowering_[static_cast<std::size_t>(ProgramKind::training_with_snapshot)].takes_snapshot = true;
  for (const ProgramKind kind : program_kinds())
    programs_[static_cast<std::size_t>(kind)] = lower(schedule_, lowering(kind));
}

std::vector<ProgramKind> Blueprint::program_kinds() const {
  if (config_.checkpoint.saves_asynchronously())
    return {ProgramKind::training, ProgramKind::evaluation, ProgramKind::training_with_snapshot};
  return {ProgramKind::training, ProgramKind::evaluation};
}

RankBlueprint::RankBlueprint(const Blueprint& blueprint, int rank, UnitTraces& units)
    : rank_(rank), part_(make_model_part(blueprint.config(), blueprint.schedule(), rank)) {
  const RunConfig& config = blueprint.config();
  const auto pipeline_rank = static_cast<std::size_t>(blueprint.mesh().coordinate(rank, Axis::pp));
  auto persistent = persistent_buffers(part_, config.num_microbatches());
  const auto snapshot = snapshot_buffers(part_, config.checkpoint, config.training.device);
  if (config.training.device == DeviceChoice::cuda)
    host_memory_ = MemoryPlan(snapshot);
  else
    persistent = both(std::move(persistent), snapshot);
  for (const ProgramKind kind : blueprint.program_kinds()) {
    programs_.push_back(&blueprint.programs(kind)[pipeline_rank]);
    traces_.emplace_back(config, rank, part_, program(kind), units);
    const auto lifetimes = lifetimes_of(program(kind), blueprint.lowering(kind), blueprint.schedule().rank_of_stage);
    memory_.emplace_back(both(persistent, transient_buffers(lifetimes, program(kind), part_, trace(kind))),
                         row_padding(part_.options));
  }
}

std::vector<RankBlueprint> Blueprint::pipeline_ranks() const& {
  UnitTraces units(config_);
  std::vector<RankBlueprint> ranks;
  Coordinates coordinates{};
  for (int pipeline_rank = 0; pipeline_rank < mesh_.degree(Axis::pp); ++pipeline_rank) {
    coordinates[static_cast<std::size_t>(Axis::pp)] = pipeline_rank;
    ranks.push_back(rank(mesh_.rank_of(coordinates), units));
  }
  return ranks;
}

std::int64_t RankBlueprint::arena_bytes() const {
  std::int64_t most = 0;
  for (const MemoryPlan& plan : memory_) most = std::max(most, plan.num_bytes());
  return most;
}

LoweringOptions lowering_options(const RunConfig& config, const std::vector<int>& rank_of_stage,
                                 std::vector<StageShape> stages) {
  const MeshShape mesh = config.mesh_shape();
  LoweringOptions options;
  options.stages = std::move(stages);
  options.reduces_gradients = mesh.group_size(data_group, 0) > 1 || num_expert_holders(config) > 1;
  set_sharding(options, config);
  options.backward_reads_count =
      config.model.mixture.num_layers_of(config.model.num_hidden_layers) > 0 && has_router_losses(config.moe);
  options.clips = true;  // without a limit the norm is still computed and logged
  const int first = rank_of_stage.front(), last = rank_of_stage.back();
  options.ties_across_ranks = config.model.tie_word_embeddings && first != last;
  require(
      !options.ties_across_ranks || (std::min(first, last) == 0 && std::max(first, last) == mesh.degree(Axis::pp) - 1),
      "the schedule has the embedding on pipeline rank {} and the head on {}, but model.tie_word_embeddings = true "
      "sums their weight over the first and the last rank (use false)",
      first, last);
  return options;
}

}  // namespace echelon
