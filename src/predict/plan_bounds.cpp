#include "predict/plan_bounds.h"

#include "spec/pipeline.h"
#include "spec/stage_layout.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

/// Sums of seconds are formed in another order than the simulator's.
constexpr double rounding = 1 - 1e-9;

constexpr auto at(PassKind kind) { return static_cast<std::size_t>(kind); }
constexpr std::size_t forward = at(PassKind::forward), backward = at(PassKind::backward), backward_input = at(PassKind::backward_input),
                      backward_weight = at(PassKind::backward_weight);

/// The ways in which a whole backward pass can be had.
double least_backward(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds) {
  const double split = seconds[backward_input] + seconds[backward_weight];
  switch (kinds) {
    case BackwardKinds::fused: return seconds[backward];
    case BackwardKinds::split: return split;
    case BackwardKinds::both: return std::min(seconds[backward], split);
  }
  return 0;
}

/// The ways in which the gradient of a stage's input can be had.
double least_backward_input(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds) {
  switch (kinds) {
    case BackwardKinds::fused: return seconds[backward];
    case BackwardKinds::split: return seconds[backward_input];
    case BackwardKinds::both: return std::min(seconds[backward], seconds[backward_input]);
  }
  return 0;
}

int rank_of_stage(int stage, int num_ranks, Placement placement) {
  return placement == Placement::loop || stage < num_ranks ? stage % num_ranks : 2 * num_ranks - 1 - stage;
}

bool keeps_whole_parameters(const PlanData& data) { return data.reshard != ReshardAfterForward::microbatch; }

struct StageCost {
  std::array<double, num_pass_kinds> seconds = {};
  std::array<std::int64_t, num_pass_kinds> workspace_bytes = {};
  std::int64_t stash_bytes = 0, input_stash_bytes = 0, gradient_stash_bytes = 0, flow_bytes = 0;
  std::int64_t num_blocks = 0, num_units = 0;
  int rank = 0;

  void add(const UnitCost& unit, std::int64_t count) {
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      seconds[kind] += static_cast<double>(count) * unit.seconds[kind];
      if (count > 0) workspace_bytes[kind] = std::max(workspace_bytes[kind], unit.workspace_bytes[kind]);
    }
    stash_bytes += count * unit.stash_bytes;
    input_stash_bytes += count * unit.input_stash_bytes;
    gradient_stash_bytes += count * unit.gradient_stash_bytes;
    num_units += count;
  }
};

}  // namespace

struct PlanBounds::Stages {
  std::vector<StageCost> stages;
  BackwardKinds backward_kinds{};
  Placement placement{};
};

PlanBounds::PlanBounds(const PlanSpace& space, const PlanRequest& request) : space_(&space), request_(&request), costs_(space, request) {}
PlanBounds::~PlanBounds() = default;

PlanBounds::Stages PlanBounds::stages_of(const PlanComputation& computation) {
  const auto& [shape, pipeline, recompute] = computation;
  const ScheduleEntry& entry = entry_of(pipeline.schedule);
  const LayerCosts& costs = costs_.layers(shape, recompute.operations);
  const int num_ranks = static_cast<int>(shape.pp), num_stages = static_cast<int>(shape.pp * pipeline.num_virtual);
  Stages result{.stages = {}, .backward_kinds = entry.backward, .placement = entry.placement};
  for (const StageLayers& layers : stage_layout(request_->base.model.num_hidden_layers, num_stages, pipeline.layout)) {
    StageCost& stage = result.stages.emplace_back();
    stage.rank = rank_of_stage(static_cast<int>(result.stages.size()) - 1, num_ranks, entry.placement);
    stage.num_blocks = layers.num_layers;
    std::int64_t again = recompute.operations.empty() ? 0 : layers.num_layers;
    if (recompute.num_blocks > 0) again = std::min(again, recompute.num_blocks);
    if (layers.has_embedding) stage.add(costs.embedding, 1);
    stage.add(costs.recomputed_block, again);
    stage.add(costs.block, layers.num_layers - again);
    if (layers.has_head) stage.add(costs.head, 1);
    stage.stash_bytes += (stage.num_units - 1) * costs.boundary_bytes;     // between units
    if (!layers.has_embedding) stage.stash_bytes += costs.boundary_bytes;  // the stage's input, which lives as long
    stage.flow_bytes = std::min<std::int64_t>(stage.num_units - 1, 2) * costs.boundary_bytes + (layers.has_head ? 0 : costs.boundary_bytes);
  }
  return result;
}

const CompactSchedule& PlanBounds::schedule_of(const PlanShape& shape, const PlanPipeline& pipeline) {
  const auto key = std::tuple(pipeline.schedule, shape.pp, pipeline.num_virtual, shape.num_microbatches);
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  const Schedule schedule = pipeline_schedule(space_->config_of({shape, pipeline, {}, {.replicate = shape.dp}}));
  return schedules_.emplace(key, compact(schedule, entry_of(pipeline.schedule).backward)).first->second;
}

double PlanBounds::shape_seconds(const PlanShape& shape) {
  const LayerCosts& costs = costs_.layers(shape, {});
  const auto least = [](const UnitCost& unit) { return unit.seconds[forward] + least_backward(unit.seconds, BackwardKinds::both); };
  const double model = least(costs.embedding) + least(costs.head) + static_cast<double>(request_->base.model.num_hidden_layers) * least(costs.block);
  return rounding * model * static_cast<double>(shape.num_microbatches) / static_cast<double>(shape.pp);
}

double PlanBounds::pipeline_seconds(const PlanComputation& computation) {
  const Stages stages = stages_of(computation);
  const BackwardKinds kinds = stages.backward_kinds;
  const auto m = static_cast<double>(computation.shape.num_microbatches);
  const auto num_ranks = static_cast<std::size_t>(computation.shape.pp);
  std::vector<double> way_there(num_ranks, 0), way_back(num_ranks, 0), all(num_ranks, 0), weights(num_ranks, 0);
  std::vector<bool> is_reached(num_ranks, false);
  double there = 0, back = 0;
  for (const StageCost& stage : stages.stages) {
    const auto rank = static_cast<std::size_t>(stage.rank);
    if (!is_reached[rank]) {
      way_there[rank] = there;
      way_back[rank] = back;
      is_reached[rank] = true;
    }
    there += stage.seconds[forward];
    back += least_backward_input(stage.seconds, kinds);
    all[rank] += m * (stage.seconds[forward] + least_backward(stage.seconds, kinds));
    if (kinds != BackwardKinds::fused) weights[rank] += m * std::max(0.0, least_backward(stage.seconds, kinds) - least_backward_input(stage.seconds, kinds));
  }
  double bound = 0;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    bound = std::max(bound, way_there[rank] + all[rank]);
    bound = std::max(bound, way_there[rank] + all[rank] - weights[rank] + way_back[rank]);  // weights' gradients may come while the last gradient goes back
  }
  return rounding * bound;
}

// After the last pass of all ranks: the part that was formed last is reduced, all ranks sum the norm, every rank updates its parts, one after the other, and
// under ZeRO-1 and 2 gathers the last one; the loss is summed.
double PlanBounds::end_of_step(const PlanChoice& choice, const StateCosts& state, double last_pass) const {
  const UnitState& block = state.block;
  const bool is_cut = choice.data.shard > 1;
  const double least_reduce = std::min({block.reduce_seconds, state.embedding.reduce_seconds, state.head.reduce_seconds});
  const double norm_begins = last_pass + least_reduce;
  const std::int64_t num_layers = request_->base.model.num_hidden_layers;
  const double update =
      static_cast<double>(num_layers) / static_cast<double>(choice.shape.pp) * block.update_seconds;  // of the rank with most layers, at least
  double gather = 0;
  if (is_cut && choice.data.zero_level < 3) gather = std::min({block.gather_seconds, state.embedding.gather_seconds, state.head.gather_seconds});
  return norm_begins + state.scalar_seconds + update + gather + state.scalar_seconds;
}

double PlanBounds::seconds(const PlanChoice& choice, bool plays) {
  const auto& [shape, pipeline, recompute, data] = choice;
  const StateCosts& state = costs_.state(shape, data);
  const PlanComputation computation = {shape, pipeline, recompute};
  double last_pass = pipeline_seconds(computation);
  Stages stages = stages_of(computation);
  const auto m = static_cast<double>(shape.num_microbatches);
  if (data.shard > 1 && data.zero_level == 3 && data.reshard != ReshardAfterForward::step) {
    // All but the first two units of a pass wait for a gather that begins with the unit before; and all gathers share a lane.
    const LayerCosts& costs = costs_.layers(shape, recompute.operations);
    std::vector<double> lane(static_cast<std::size_t>(shape.pp), 0);
    for (StageCost& stage : stages.stages) {
      const std::int64_t num_waiting = std::max<std::int64_t>(0, stage.num_blocks - 2);
      for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
        if (kind != forward && data.reshard == ReshardAfterForward::never) continue;
        const double pass = std::max(costs.block.seconds[kind], costs.recomputed_block.seconds[kind]);
        stage.seconds[kind] += static_cast<double>(num_waiting) * std::max(0.0, state.block.gather_seconds - pass);
      }
      const double passes = data.reshard == ReshardAfterForward::never ? 1 : 2;
      lane[static_cast<std::size_t>(stage.rank)] +=
          m * passes * static_cast<double>(std::max<std::int64_t>(0, stage.num_blocks - 1)) * state.block.gather_seconds;
      if (shape.dp > 1) lane[static_cast<std::size_t>(stage.rank)] += m * static_cast<double>(stage.num_blocks) * state.block.reduce_seconds;
    }
    last_pass = std::max(last_pass, *std::max_element(lane.begin(), lane.end()) - state.block.reduce_seconds);
  } else if (data.shard > 1 && data.zero_level >= 2) {
    std::vector<double> lane(static_cast<std::size_t>(shape.pp), 0);
    for (const StageCost& stage : stages.stages)
      lane[static_cast<std::size_t>(stage.rank)] += m * static_cast<double>(stage.num_blocks) * state.block.reduce_seconds;
    last_pass = std::max(last_pass, *std::max_element(lane.begin(), lane.end()) - state.block.reduce_seconds);
  }
  if (plays) {
    StageSeconds seconds;
    for (const StageCost& stage : stages.stages) seconds.push_back(stage.seconds);
    const std::vector<double> ends = last_pass_ends(schedule_of(shape, pipeline), seconds, state.transfer_seconds);
    last_pass = std::max(last_pass, *std::max_element(ends.begin(), ends.end()));
  }
  return rounding * end_of_step(choice, state, last_pass);
}

std::int64_t PlanBounds::persistent_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank) {
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  const std::int64_t tokens = choice.shape.micro_batch_size * request_->base.training.seq_len;
  std::int64_t bytes = state.constant_bytes + 2 * choice.shape.num_microbatches * tokens * size_of(DType::int32);
  bool has_tied = false;
  for (std::size_t i = 0; i < stages.stages.size(); ++i) {
    if (static_cast<std::size_t>(stages.stages[i].rank) != rank) continue;
    bytes += stages.stages[i].num_blocks * state.block.persistent_bytes;
    const bool is_first = i == 0, is_last = i + 1 == stages.stages.size();
    if (is_first) bytes += state.embedding.persistent_bytes;
    if (is_last) bytes += state.head.persistent_bytes;
    has_tied = has_tied || is_first || is_last;
  }
  return bytes + (has_tied ? state.tied_weight.persistent_bytes : 0);
}

// The fullest moment of a rank is during a pass; what the next stage's gradient and the pass between units need is there beside what is kept.
std::int64_t PlanBounds::passing_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank) {
  std::int64_t alive = 0, peak = 0;
  for (const CompactPass& pass : schedule_of(choice.shape, choice.pipeline).ranks[rank]) {
    const StageCost& stage = stages.stages[pass.stage];
    if (pass.kind == PassKind::forward) alive += stage.stash_bytes + stage.input_stash_bytes;
    if (pass.kind == PassKind::backward_input) alive += stage.gradient_stash_bytes;
    const bool flows = pass.kind == PassKind::backward || pass.kind == PassKind::backward_input;
    peak = std::max(peak, alive + stage.workspace_bytes[at(pass.kind)] + (flows ? stage.flow_bytes : 0));
    if (pass.kind == PassKind::backward) alive -= stage.stash_bytes + stage.input_stash_bytes;
    if (pass.kind == PassKind::backward_input) alive -= stage.input_stash_bytes;
    if (pass.kind == PassKind::backward_weight) alive -= stage.stash_bytes + stage.gradient_stash_bytes;
  }
  return peak;
}

std::int64_t PlanBounds::gathered_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank) {
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  if (choice.data.shard == 1 || choice.data.zero_level < 3 || !keeps_whole_parameters(choice.data)) return 0;
  std::int64_t bytes = 0;
  for (const StageCost& stage : stages.stages)
    if (static_cast<std::size_t>(stage.rank) == rank) bytes += stage.num_blocks * state.block.whole_param_bytes + stage.stash_bytes;
  return bytes;
}

std::int64_t PlanBounds::bytes(const PlanChoice& choice) {
  const Stages stages = stages_of({choice.shape, choice.pipeline, choice.recompute});
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(choice.shape.pp); ++rank)
    peak = std::max(peak, persistent_bytes(choice, stages, rank) + std::max(passing_bytes(choice, stages, rank), gathered_bytes(choice, stages, rank)));
  return peak;
}

std::int64_t PlanBounds::pipeline_bytes(const PlanComputation& computation) {
  const auto& [shape, pipeline, recompute] = computation;
  // Nothing keeps less for good than all parameters, gradients and states in as many shards as there are data ranks.
  return bytes({shape, pipeline, recompute, {.replicate = 1, .shard = shape.dp, .zero_level = 3}});
}

}  // namespace echelon
