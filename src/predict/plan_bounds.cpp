#include "predict/plan_bounds.h"

#include "spec/pipeline.h"

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

struct PlanBounds::Computed {
  PlanComputation computation;
  Stages stages;
  double seconds = -1;                                  // pipeline_seconds
  std::vector<std::int64_t> passing_bytes{};            // by rank; empty: not known yet
  std::map<double, std::vector<double>> last_passes{};  // by the seconds of a transfer
};

PlanBounds::PlanBounds(const PlanSpace& space, const PlanRequest& request) : space_(&space), request_(&request), costs_(space, request) {}
PlanBounds::~PlanBounds() = default;

PlanBounds::Computed& PlanBounds::computed(const PlanComputation& computation) {
  if (!last_ || last_->computation != computation) last_ = std::make_unique<Computed>(Computed{computation, stages_of(computation)});
  return *last_;
}

PlanBounds::Stages PlanBounds::stages_of(const PlanComputation& computation) {
  const auto& [shape, pipeline, recompute] = computation;
  const ScheduleEntry& entry = entry_of(pipeline.schedule);
  const LayerCosts& costs = costs_.layers(shape, recompute.operations);
  const int num_ranks = static_cast<int>(shape.pp), num_stages = static_cast<int>(shape.pp * pipeline.num_virtual);
  Stages result{.stages = {}, .backward_kinds = entry.backward, .placement = entry.placement};
  for (const StageLayers& layers : space_->stages_of(num_stages, pipeline.layout)) {
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
  if (request_->machine.host) return 0;  // ranks that wait lend their cores: nothing is known before all ranks are simulated
  const LayerCosts& costs = costs_.layers(shape, {});
  const auto least = [](const UnitCost& unit) { return unit.seconds[forward] + least_backward(unit.seconds, BackwardKinds::both); };
  const double model = least(costs.embedding) + least(costs.head) + static_cast<double>(request_->base.model.num_hidden_layers) * least(costs.block);
  return rounding * model * static_cast<double>(shape.num_microbatches) / static_cast<double>(shape.pp);
}

double PlanBounds::pipeline_seconds(const PlanComputation& computation) {
  if (request_->machine.host) return 0;  // ranks that wait lend their cores: nothing is known before all ranks are simulated
  Computed& known = computed(computation);
  if (known.seconds >= 0) return known.seconds;
  const Stages& stages = known.stages;
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
  double bound = computation.pipeline.schedule == PipelineSchedule::naive ? m * (there + back) : 0;  // one microbatch after the other
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    bound = std::max(bound, way_there[rank] + all[rank]);
    bound = std::max(bound, way_there[rank] + all[rank] - weights[rank] + way_back[rank]);  // weights' gradients may come while the last gradient goes back
  }
  return known.seconds = rounding * bound;
}

// Under ZeRO-3 all but the first two units of a pass wait for a gather that begins with the unit before.
const std::vector<double>& PlanBounds::last_passes(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const bool waits = choice.data.shard > 1 && choice.data.zero_level == 3 && choice.data.reshard != ReshardAfterForward::step;
  const LayerCosts& costs = costs_.layers(choice.shape, choice.recompute.operations);
  StageSeconds seconds;
  double waited = 0;
  for (const StageCost& stage : stages.stages) {
    seconds.push_back(stage.seconds);
    const auto num_waiting = static_cast<double>(std::max<std::int64_t>(0, stage.num_blocks - 2));
    for (std::size_t kind = 0; kind < num_pass_kinds && waits; ++kind) {
      if (kind != forward && choice.data.reshard == ReshardAfterForward::never) continue;
      const double pass = std::max(costs.block.seconds[kind], costs.recomputed_block.seconds[kind]);
      const double more = num_waiting * std::max(0.0, state.block.gather_seconds - pass);
      seconds.back()[kind] += more;
      waited += more;
    }
  }
  auto& known = computed(computation).last_passes;
  if (waited > 0) return known[-1] = last_pass_ends(schedule_of(choice.shape, choice.pipeline), seconds, state.transfer_seconds);
  const auto found = known.find(state.transfer_seconds);
  if (found != known.end()) return found->second;
  return known[state.transfer_seconds] = last_pass_ends(schedule_of(choice.shape, choice.pipeline), seconds, state.transfer_seconds);
}

// Under ZeRO-3 nobody computes a block before the first rank has gathered the embedding and its first block, one after the other.
double PlanBounds::first_gathers(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  if (choice.data.shard == 1 || choice.data.zero_level < 3) return 0;
  const double embedding = state.embedding.gather_seconds + state.tied_weight.gather_seconds;
  if (stages.stages.front().num_blocks == 0) return embedding;
  const double pass = costs_.layers(choice.shape, choice.recompute.operations).embedding.seconds[forward];
  return std::max(embedding, embedding + state.block.gather_seconds - pass);
}

// The collectives of a rank's data axes share a lane: all but the last one of them lie before the norm.
double PlanBounds::lane_seconds(const PlanChoice& choice, const Stages& stages, const StateCosts& state) const {
  const PlanData& data = choice.data;
  if (data.shard == 1 || data.zero_level < 2) return 0;
  double gathers = 0;  // a microbatch and unit
  if (data.zero_level == 3 && data.reshard != ReshardAfterForward::step) gathers = data.reshard == ReshardAfterForward::never ? 1 : 2;
  std::vector<double> lane(static_cast<std::size_t>(choice.shape.pp), 0);
  for (const StageCost& stage : stages.stages) {
    const auto num_blocks = static_cast<double>(stage.num_blocks);
    lane[static_cast<std::size_t>(stage.rank)] +=
        num_blocks * state.block.reduce_seconds + gathers * std::max(0.0, num_blocks - 1) * state.block.gather_seconds;
  }
  return static_cast<double>(choice.shape.num_microbatches) * *std::max_element(lane.begin(), lane.end()) - state.block.reduce_seconds;
}

// After the last pass of each rank: gradients of the units of that pass have been reduced one after the other since they were formed, all ranks sum the norm,
// every rank updates its units and under ZeRO-1 and 2 gathers each, one after the other on lanes of their own; the loss is summed.
double PlanBounds::step_end(const PlanChoice& choice, const Stages& stages, const StateCosts& state, const std::vector<double>& last_passes) {
  const bool gathers = choice.data.shard > 1 && choice.data.zero_level < 3;
  const double reduce = state.block.reduce_seconds + state.block.reduce_parts_seconds;
  const LayerCosts& costs = costs_.layers(choice.shape, choice.recompute.operations);
  // The longest that a unit may take in the last pass: what comes later is reduced earlier than one thinks, never later.
  const auto longest = [&](const UnitCost& unit) {
    double seconds = stages.backward_kinds == BackwardKinds::split ? 0 : unit.seconds[backward];
    if (stages.backward_kinds != BackwardKinds::fused) seconds = std::max(seconds, unit.seconds[backward_weight]);
    return choice.data.zero_level == 3 ? std::max(seconds, state.block.gather_seconds) : seconds;
  };
  const double unit_pass = std::max(longest(costs.block), longest(costs.recomputed_block)), embedding_pass = longest(costs.embedding);
  const auto reduced = [](const UnitState& unit) { return unit.reduce_seconds + unit.reduce_parts_seconds; };
  const bool is_tied = state.tied_weight.persistent_bytes > 0;
  const int first_rank = stages.stages.front().rank, last_rank = stages.stages.back().rank;
  // What the embedding's backward pass forms comes last on its rank, unless weights' gradients of another of its stages are put off.
  const bool ends_with_embedding = stages.backward_kinds == BackwardKinds::fused || choice.pipeline.num_virtual == 1;
  double norm_begins = 0, ends = 0;
  for (std::size_t rank = 0; rank < last_passes.size(); ++rank) {
    std::int64_t fewest = request_->base.model.num_hidden_layers, num_blocks = 0;
    for (const StageCost& stage : stages.stages) {
      if (static_cast<std::size_t>(stage.rank) != rank) continue;
      fewest = std::min(fewest, stage.num_blocks);
      num_blocks += stage.num_blocks;
    }
    // The blocks of the last pass, whichever stage it goes through, are formed no earlier than one pass of a block before the other.
    const double since_first = static_cast<double>(std::max<std::int64_t>(0, fewest - 1)) * unit_pass + embedding_pass;
    const double queued = static_cast<double>(fewest) * reduce - since_first;
    const bool has_embedding = static_cast<int>(rank) == first_rank, has_head = static_cast<int>(rank) == last_rank;
    const double behind = has_embedding && ends_with_embedding ? reduced(state.embedding) + reduced(state.tied_weight) : 0;
    norm_begins = std::max(norm_begins, last_passes[rank] + std::max(0.0, queued) + behind);

    double update = static_cast<double>(num_blocks) * state.block.update_seconds, gather = static_cast<double>(num_blocks) * state.block.gather_seconds;
    double last_gather = state.block.gather_seconds;
    const auto add = [&](const UnitState& unit) {
      update += unit.update_seconds;
      gather += unit.gather_seconds;
      last_gather = std::min(last_gather, unit.gather_seconds);
    };
    if (has_embedding) add(state.embedding);
    if (has_head) add(state.head);
    if ((has_embedding || has_head) && is_tied) add(state.tied_weight);
    ends = std::max(ends, gathers ? std::max(update + last_gather, gather) : update);
  }
  return norm_begins + state.scalar_seconds + ends + state.scalar_seconds;
}

double PlanBounds::seconds(const PlanChoice& choice, bool plays) {
  if (request_->machine.host) return 0;  // ranks that wait lend their cores: nothing is known before all ranks are simulated
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  const double least = pipeline_seconds(computation);
  const Stages& stages = computed(computation).stages;
  std::vector<double> ends(static_cast<std::size_t>(choice.shape.pp), 0);
  if (plays) ends = last_passes(choice, stages, state);
  ends.front() = std::max(ends.front(), least);
  for (double& end : ends) end += first_gathers(choice, stages, state);
  ends.front() = std::max(ends.front(), lane_seconds(choice, stages, state));
  if (!plays) return rounding * (ends.front() + 2 * state.scalar_seconds);
  return rounding * step_end(choice, stages, state, ends);
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
const std::vector<std::int64_t>& PlanBounds::passing_bytes(const PlanComputation& computation) {
  Computed& known = computed(computation);
  if (!known.passing_bytes.empty()) return known.passing_bytes;
  for (const std::vector<CompactPass>& order : schedule_of(computation.shape, computation.pipeline).ranks) {
    std::int64_t alive = 0, peak = 0;
    for (const CompactPass& pass : order) {
      const StageCost& stage = known.stages.stages[pass.stage];
      if (pass.kind == PassKind::forward) alive += stage.stash_bytes + stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_input) alive += stage.gradient_stash_bytes;
      const bool flows = pass.kind == PassKind::backward || pass.kind == PassKind::backward_input;
      peak = std::max(peak, alive + stage.workspace_bytes[at(pass.kind)] + (flows ? stage.flow_bytes : 0));
      if (pass.kind == PassKind::backward) alive -= stage.stash_bytes + stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_input) alive -= stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_weight) alive -= stage.stash_bytes + stage.gradient_stash_bytes;
    }
    known.passing_bytes.push_back(peak);
  }
  return known.passing_bytes;
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
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const std::vector<std::int64_t>& passing = passing_bytes(computation);
  const Stages& stages = computed(computation).stages;
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < passing.size(); ++rank)
    peak = std::max(peak, persistent_bytes(choice, stages, rank) + std::max(passing[rank], gathered_bytes(choice, stages, rank)));
  return peak;
}

namespace {

/// Nothing keeps less for good than all parameters, gradients and states in as many shards as there are data ranks.
PlanChoice cut_most(const PlanComputation& computation) {
  return {computation.shape, computation.pipeline, computation.recompute, {.replicate = 1, .shard = computation.shape.dp, .zero_level = 3}};
}

}  // namespace

std::int64_t PlanBounds::pipeline_bytes(const PlanComputation& computation) { return bytes(cut_most(computation)); }

std::int64_t PlanBounds::pipeline_bytes_at_least(const PlanComputation& computation) {
  const PlanChoice choice = cut_most(computation);
  const Stages& stages = computed(computation).stages;
  const PipelineSchedule schedule = computation.pipeline.schedule;
  const bool holds_all = schedule == PipelineSchedule::gpipe || schedule == PipelineSchedule::looped_bfs;  // all go forward before the first goes back
  const std::int64_t in_flight = holds_all ? computation.shape.num_microbatches : 1;
  std::vector<std::int64_t> kept(static_cast<std::size_t>(computation.shape.pp), 0);
  for (const StageCost& stage : stages.stages) kept[static_cast<std::size_t>(stage.rank)] += in_flight * (stage.stash_bytes + stage.input_stash_bytes);
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < kept.size(); ++rank) peak = std::max(peak, persistent_bytes(choice, stages, rank) + kept[rank]);
  return peak;
}

}  // namespace echelon
