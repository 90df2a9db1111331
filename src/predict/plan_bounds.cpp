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

/// Of all cores of a host for one rank, whichever microbatch it is.
double core_seconds_of(const UnitCost& unit, std::size_t kind) { return std::min(unit.first[kind].core_seconds, unit.later[kind].core_seconds); }

/// At least, of a stage's blocks in a step: a pass may find the block that the pass before it has left gathered.
double gathers_of_blocks(const PlanData& data, double num_microbatches, double num_blocks) {
  if (data.zero_level < 3 || data.reshard == ReshardAfterForward::step) return num_blocks;
  return num_microbatches * (data.reshard == ReshardAfterForward::never ? 1 : 2) * std::max(0.0, num_blocks - 1);
}

double core_seconds_of(const UnitState& unit, ActionKind kind) {
  const auto found = unit.deeds.find(kind);
  return found == unit.deeds.end() ? 0 : found->second.core_seconds;
}

struct StageCost {
  std::array<double, num_pass_kinds> seconds = {}, core_seconds = {};
  std::array<std::int64_t, num_pass_kinds> workspace_bytes = {};
  std::int64_t stash_bytes = 0, input_stash_bytes = 0, gradient_stash_bytes = 0, flow_bytes = 0;
  std::int64_t num_blocks = 0, num_again = 0, num_units = 0;  // again: the first blocks, which are formed again
  int rank = 0;

  void add(const UnitCost& unit, std::int64_t count) {
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      seconds[kind] += static_cast<double>(count) * unit.seconds[kind];
      core_seconds[kind] += static_cast<double>(count) * core_seconds_of(unit, kind);
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
  bool waits = false;  // in its passes, for gathers
};

/// By how much a pass of a stage takes longer than what it computes.
struct PlanBounds::Wait {
  std::size_t stage = 0, kind = 0;
  double seconds = 0;
};

/// What passes need at their fullest: any; one of a block forward, and one that forms gradients of weights, beside what the data axes have there.
struct PlanBounds::PassingBytes {
  std::int64_t any = 0, forward = 0, weights = 0;
};

struct PlanBounds::Computed {
  PlanComputation computation;
  Stages stages;
  std::vector<double> ends{};                           // by rank: that of its last pass at least, without a clock; empty: not known yet
  std::vector<PassingBytes> passing_bytes{};            // by rank; empty: not known yet
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
    stage.num_again = again;
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

/// On a host: seconds in which its cores do what one rank of every stage has to do, for all of them. Ranks that wait lend their cores, so only the sum bounds
/// them.
double PlanBounds::on_all_cores(const PlanShape& shape, double core_seconds) const {
  if (!request_->machine.host) return 0;
  return rounding * static_cast<double>(shape.tp * shape.dp) * core_seconds / static_cast<double>(request_->machine.host->num_cores);
}

double PlanBounds::core_seconds(const PlanComputation& computation, const Stages& stages) {
  double sum = 0;
  for (const StageCost& stage : stages.stages) sum += stage.core_seconds[forward] + least_backward(stage.core_seconds, stages.backward_kinds);
  return static_cast<double>(computation.shape.num_microbatches) * sum;
}

/// What comes to that once a step, or once a microbatch under ZeRO-2 and 3.
double PlanBounds::state_core_seconds(const PlanChoice& choice, const Stages& stages, const StateTraces& state) {
  const auto m = static_cast<double>(choice.shape.num_microbatches);
  const PlanData& data = choice.data;
  const double update = core_seconds_of(state.block, ActionKind::update),
               gather = data.shard > 1 ? core_seconds_of(state.block, ActionKind::gather_parameters) : 0;
  const double reduce = choice.shape.dp > 1 ? core_seconds_of(state.block, ActionKind::reduce_gradients) : 0;
  const double reductions = data.shard > 1 && data.zero_level >= 2 ? m : 1;
  double sum = core_seconds_of(state.embedding, ActionKind::update) + core_seconds_of(state.head, ActionKind::update);
  for (const StageCost& stage : stages.stages) {
    const auto num_blocks = static_cast<double>(stage.num_blocks);
    sum += num_blocks * (update + reductions * reduce) + gathers_of_blocks(data, m, num_blocks) * gather;
  }
  return sum;
}

double PlanBounds::shape_seconds(const PlanShape& shape) {
  const LayerCosts& costs = costs_.layers(shape, {});
  double seconds = 0, core_seconds = 0;
  const auto add = [&](const UnitCost& unit, std::int64_t count) {
    StageCost units;
    units.add(unit, count);
    seconds += units.seconds[forward] + least_backward(units.seconds, BackwardKinds::both);
    core_seconds += units.core_seconds[forward] + least_backward(units.core_seconds, BackwardKinds::both);
  };
  add(costs.embedding, 1);
  add(costs.head, 1);
  add(costs.block, request_->base.model.num_hidden_layers);
  const auto m = static_cast<double>(shape.num_microbatches);
  return std::max(rounding * seconds * m / static_cast<double>(shape.pp), on_all_cores(shape, m * core_seconds));
}

double PlanBounds::pipeline_seconds(const PlanComputation& computation) {
  Computed& known = computed(computation);
  if (known.ends.empty()) known.ends = unplayed_ends(computation, known.stages);
  return std::max(rounding * *std::max_element(known.ends.begin(), known.ends.end()), on_all_cores(computation.shape, core_seconds(computation, known.stages)));
}

std::vector<double> PlanBounds::unplayed_ends(const PlanComputation& computation, const Stages& stages) const {
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
  double first_rank = computation.pipeline.schedule == PipelineSchedule::naive ? m * (there + back) : 0;  // one microbatch after the other
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    all[rank] += way_there[rank];
    first_rank = std::max(first_rank, all[rank] - weights[rank] + way_back[rank]);  // weights' gradients may come while the last gradient goes back
  }
  all.front() = std::max(all.front(), first_rank);
  return all;
}

// Under ZeRO-3 passes wait for gathers inside. Of n blocks of a pass all but the first are gathered in it, one after the other, and none before what comes
// before the first has ended: the last begins n - 1 gathers later at the earliest. Where gradients of the weights are formed, the reduction of a block comes
// into the lane behind the gather of the next one and before that of the one after it: from the end of the first block to the begin of the last lie n - 2 of
// both.
std::vector<PlanBounds::Wait> PlanBounds::waits_of(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  std::vector<Wait> waits;
  const PlanData& data = choice.data;
  if (data.shard == 1 || data.zero_level < 3 || data.reshard == ReshardAfterForward::step) return waits;
  const LayerCosts& costs = costs_.layers(choice.shape, choice.recompute.operations);
  const double gather = state.block.gather, reduce = state.block.reduce;
  for (std::size_t i = 0; i < stages.stages.size(); ++i)
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
      const StageCost& stage = stages.stages[i];
      if (stage.num_blocks < 2 || (kind != forward && data.reshard == ReshardAfterForward::never)) continue;
      const auto n = static_cast<double>(stage.num_blocks), again = static_cast<double>(stage.num_again);
      const double plain = costs.block.seconds[kind], recomputed = costs.recomputed_block.seconds[kind], all = again * recomputed + (n - again) * plain;
      const double bottom = again > 0 ? recomputed : plain, top = again < n ? plain : recomputed;
      const double last = kind == forward ? top : bottom;
      double seconds = std::max(0.0, (n - 1) * gather - (all - last));
      if (kind == backward || kind == backward_weight) seconds = std::max(seconds, (n - 2) * (gather + reduce) - (all - top - bottom));
      if (seconds > 0) waits.push_back({i, kind, seconds});
    }
  return waits;
}

const std::vector<double>& PlanBounds::last_passes(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  auto& known = computed({choice.shape, choice.pipeline, choice.recompute}).last_passes;
  const double key = stages.waits ? -1 : state.transfer_seconds;
  const auto found = known.find(key);
  if (found != known.end() && !stages.waits) return found->second;
  StageSeconds seconds;
  for (const StageCost& stage : stages.stages) seconds.push_back(stage.seconds);
  return known[key] = last_pass_ends(schedule_of(choice.shape, choice.pipeline), seconds, state.transfer_seconds);
}

// Under ZeRO-3 nobody computes a block before the first rank has gathered the embedding and its first block, one after the other.
double PlanBounds::first_gathers(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  if (choice.data.shard == 1 || choice.data.zero_level < 3) return 0;
  const double embedding = state.embedding.gather + state.tied_weight.gather;
  if (stages.stages.front().num_blocks == 0) return embedding;
  const double pass = costs_.layers(choice.shape, choice.recompute.operations).embedding.seconds[forward];
  return std::max(embedding, embedding + state.block.gather - pass);
}

// One rank alone goes through all blocks forward and then back, of one microbatch (1F1B) or of all (breadth-first), so that the lane can be followed through
// the whole phase: forward the last block waits for the gathers of all. Back the first reduction waits for the first block's pass; behind it come the gathers
// of all but the first two blocks, all reductions but those of the last two, and in the last phase the sums over replicas but those of the last four, each of
// which comes two passes behind its reduction: for them the last block waits.
double PlanBounds::single_rank_end(const PlanChoice& choice, const Stages& stages, const StateCosts& state) {
  const PlanData& data = choice.data;
  const bool breadth_first = choice.pipeline.schedule == PipelineSchedule::looped_bfs;
  const bool gathers = data.shard > 1 && data.zero_level == 3 && data.reshard != ReshardAfterForward::step;
  if (!gathers || (!breadth_first && choice.pipeline.schedule != PipelineSchedule::one_f_one_b)) return 0;
  const LayerCosts& costs = costs_.layers(choice.shape, choice.recompute.operations);
  const double num_phases = breadth_first ? 1 : static_cast<double>(choice.shape.num_microbatches);
  const double num_together = static_cast<double>(choice.shape.num_microbatches) / num_phases;
  double num_blocks = 0, num_gathers = 0, forwards = 0, backwards = 0;
  bool any_again = false, any_plain = false;
  for (const StageCost& stage : stages.stages) {
    const auto n = static_cast<double>(stage.num_blocks);
    num_blocks += n;
    num_gathers += stage.num_blocks > 1 ? num_together * n : n;  // one block alone is kept for the next microbatch
    forwards += num_together * stage.seconds[forward];
    backwards += num_together * stage.seconds[backward];
    any_again = any_again || stage.num_again > 0;
    any_plain = any_plain || stage.num_again < stage.num_blocks;
  }
  const auto least_of_block = [&](std::size_t kind) {
    double least = no_time;
    if (any_plain) least = std::min(least, costs.block.seconds[kind]);
    if (any_again) least = std::min(least, costs.recomputed_block.seconds[kind]);
    return least;
  };
  const UnitState& block = state.traces->block;
  backwards +=
      num_together * num_blocks * (block.deeds.at(ActionKind::open_gradients).compute_seconds + block.deeds.at(ActionKind::store_gradients).compute_seconds);
  const double embedding = state.embedding.gather + state.tied_weight.gather;
  const double forth = std::max(forwards + std::max(0.0, state.block.gather - costs.embedding.seconds[forward]),
                                num_gathers * state.block.gather + least_of_block(forward) + costs.head.seconds[forward]);
  double back = backwards, last_back = backwards;
  if (data.reshard == ReshardAfterForward::microbatch) {
    const double bottom = least_of_block(backward) + costs.embedding.seconds[backward];
    const double lane = costs.head.seconds[backward] + least_of_block(backward) + (num_gathers - 2) * state.block.gather +
                        (num_together * num_blocks - 2) * state.block.reduce + bottom;
    back = std::max(back, lane);
    last_back = std::max(back, lane + std::max(0.0, num_blocks - 4) * state.block.reduce_parts);
  }
  return embedding + num_phases * forth + (num_phases - 1) * back + last_back;
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
    lane[static_cast<std::size_t>(stage.rank)] += num_blocks * state.block.reduce + gathers * std::max(0.0, num_blocks - 1) * state.block.gather;
  }
  return static_cast<double>(choice.shape.num_microbatches) * *std::max_element(lane.begin(), lane.end()) - state.block.reduce;
}

// After the last pass of each rank: gradients of the units of that pass have been reduced one after the other since they were formed, all ranks sum the norm,
// every rank updates its units and under ZeRO-1 and 2 gathers each, one after the other on lanes of their own; the loss is summed.
double PlanBounds::step_end(const PlanChoice& choice, const Stages& stages, const StateCosts& state, const std::vector<double>& last_passes) {
  const bool gathers = choice.data.shard > 1 && choice.data.zero_level < 3;
  const double reduce = state.block.reduce + state.block.reduce_parts;
  const LayerCosts& costs = costs_.layers(choice.shape, choice.recompute.operations);
  // The longest that a unit may take in the last pass: what comes later is reduced earlier than one thinks, never later.
  const auto pass_seconds = [&](const UnitCost& unit) {
    double seconds = stages.backward_kinds == BackwardKinds::split ? 0 : unit.seconds[backward];
    if (stages.backward_kinds != BackwardKinds::fused) seconds = std::max(seconds, unit.seconds[backward_weight]);
    return seconds;
  };
  const double waits = choice.data.zero_level == 3 ? state.block.gather + reduce : 0, embedding_pass = pass_seconds(costs.embedding);
  const double unit_pass = std::max({waits, pass_seconds(costs.block), pass_seconds(costs.recomputed_block)});
  const auto reduced = [](const UnitSeconds& unit) { return unit.reduce + unit.reduce_parts; };
  const bool is_tied = state.traces->tied_weight.persistent_bytes > 0;
  const int first_rank = stages.stages.front().rank, last_rank = stages.stages.back().rank;
  // What the embedding's backward pass forms comes last on its rank, unless weights' gradients of another of its stages are put off.
  const bool ends_with_embedding = stages.backward_kinds == BackwardKinds::fused || choice.pipeline.num_virtual == 1;
  double norm_begins = lane_seconds(choice, stages, state), squares = 0, ends = 0;
  for (std::size_t rank = 0; rank < last_passes.size(); ++rank) {
    std::int64_t fewest = request_->base.model.num_hidden_layers, num_blocks = 0;
    for (const StageCost& stage : stages.stages) {
      if (static_cast<std::size_t>(stage.rank) != rank) continue;
      fewest = std::min(fewest, stage.num_blocks);
      num_blocks += stage.num_blocks;
    }
    // The blocks of the last pass, whichever stage it goes through, are formed no earlier than one pass of a block before the other.
    const double since_first = static_cast<double>(std::max<std::int64_t>(0, fewest - 1)) * unit_pass + std::max(waits, embedding_pass);
    const bool has_embedding = static_cast<int>(rank) == first_rank, has_head = static_cast<int>(rank) == last_rank;
    // The last block's reduction begins when its pass has ended, or when the gathers before it have, for which the embedding's pass waits too.
    const double of_last = fewest > 0 ? reduce - (has_embedding ? embedding_pass : 0) : 0;
    const double queued = std::max(static_cast<double>(fewest) * reduce - since_first, of_last);
    const double behind = has_embedding && ends_with_embedding ? reduced(state.embedding) + reduced(state.tied_weight) : 0;
    norm_begins = std::max(norm_begins, last_passes[rank] + std::max(0.0, queued) + behind);

    double update = static_cast<double>(num_blocks) * state.block.update, gather = static_cast<double>(num_blocks) * state.block.gather;
    double last_gather = state.block.gather;
    const auto add = [&](const UnitSeconds& unit) {
      update += unit.update;
      gather += unit.gather;
      last_gather = std::min(last_gather, unit.gather);
    };
    squares = std::max(squares, static_cast<double>(num_blocks) * state.block.squares);
    if (has_embedding) add(state.embedding);
    if (has_head) add(state.head);
    if ((has_embedding || has_head) && is_tied) add(state.tied_weight);
    ends = std::max(ends, gathers ? std::max(update + last_gather, gather) : update);
  }
  return norm_begins + squares + state.scalar_seconds + ends + state.scalar_seconds;
}

double PlanBounds::seconds(const PlanChoice& choice, bool plays) {
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  const double least = pipeline_seconds(computation);
  if (request_->machine.host) {
    const Stages& alone = computed(computation).stages;
    return std::max(least, on_all_cores(choice.shape, core_seconds(computation, alone) + state_core_seconds(choice, alone, *state.traces)));
  }
  const std::vector<Wait> waits = waits_of(choice, computed(computation).stages, state);
  Stages waiting;
  if (!waits.empty()) {
    waiting = computed(computation).stages;
    waiting.waits = true;
    for (const Wait& each : waits) waiting.stages[each.stage].seconds[each.kind] += each.seconds;
  }
  const Stages& stages = waits.empty() ? computed(computation).stages : waiting;
  std::vector<double> ends = waits.empty() ? computed(computation).ends : unplayed_ends(computation, stages);
  if (plays) {
    const std::vector<double>& played = last_passes(choice, stages, state);
    for (std::size_t rank = 0; rank < ends.size(); ++rank) ends[rank] = std::max(ends[rank], played[rank]);
  }
  // Nothing is computed before gradients are cleared, and under ZeRO-3 gathers go on beside.
  std::vector<std::int64_t> num_blocks(ends.size(), 0);
  for (const StageCost& stage : stages.stages) num_blocks[static_cast<std::size_t>(stage.rank)] += stage.num_blocks;
  const double cleared = static_cast<double>(*std::min_element(num_blocks.begin(), num_blocks.end())) * state.block.clear;
  for (double& end : ends) end += std::max(cleared, first_gathers(choice, stages, state));
  if (ends.size() == 1) ends.front() = std::max(ends.front(), single_rank_end(choice, computed(computation).stages, state));
  return rounding * step_end(choice, stages, state, ends);
}

std::int64_t PlanBounds::persistent_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank) {
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  const std::int64_t tokens = choice.shape.micro_batch_size * request_->base.training.seq_len;
  std::int64_t bytes = state.traces->constant_bytes + 2 * choice.shape.num_microbatches * tokens * size_of(DType::int32);
  bool has_tied = false;
  for (std::size_t i = 0; i < stages.stages.size(); ++i) {
    if (static_cast<std::size_t>(stages.stages[i].rank) != rank) continue;
    bytes += stages.stages[i].num_blocks * state.traces->block.persistent_bytes;
    const bool is_first = i == 0, is_last = i + 1 == stages.stages.size();
    if (is_first) bytes += state.traces->embedding.persistent_bytes;
    if (is_last) bytes += state.traces->head.persistent_bytes;
    has_tied = has_tied || is_first || is_last;
  }
  return bytes + (has_tied ? state.traces->tied_weight.persistent_bytes : 0);
}

// The fullest moment of a rank is during a pass; what the next stage's gradient and the pass between units need is there beside what is kept.
const std::vector<PlanBounds::PassingBytes>& PlanBounds::passing_bytes(const PlanComputation& computation) {
  Computed& known = computed(computation);
  if (!known.passing_bytes.empty()) return known.passing_bytes;
  const LayerCosts& costs = costs_.layers(computation.shape, computation.recompute.operations);
  for (const std::vector<CompactPass>& order : schedule_of(computation.shape, computation.pipeline).ranks) {
    std::int64_t alive = 0;
    PassingBytes& peak = known.passing_bytes.emplace_back();
    for (const CompactPass& pass : order) {
      const StageCost& stage = known.stages.stages[pass.stage];
      if (pass.kind == PassKind::forward) alive += stage.stash_bytes + stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_input) alive += stage.gradient_stash_bytes;
      const bool flows = pass.kind == PassKind::backward || pass.kind == PassKind::backward_input;
      const std::int64_t held = alive + (flows ? stage.flow_bytes : 0);
      peak.any = std::max(peak.any, held + stage.workspace_bytes[at(pass.kind)]);
      if (stage.num_blocks > 2) {
        const std::int64_t of_block = std::min(costs.block.workspace_bytes[at(pass.kind)], costs.recomputed_block.workspace_bytes[at(pass.kind)]);
        std::int64_t& of_kind = pass.kind == PassKind::backward || pass.kind == PassKind::backward_weight ? peak.weights : peak.forward;
        of_kind = std::max(of_kind, held + of_block);
      }
      if (pass.kind == PassKind::backward) alive -= stage.stash_bytes + stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_input) alive -= stage.input_stash_bytes;
      if (pass.kind == PassKind::backward_weight) alive -= stage.stash_bytes + stage.gradient_stash_bytes;
    }
  }
  return known.passing_bytes;
}

// Beside the pass of a block between two others: under ZeRO-3 the block's parameters and those of the next one; from ZeRO-2 on the block's gradients and those
// of the one before it, which are being reduced.
std::int64_t PlanBounds::bytes_beside_passes(const PlanChoice& choice, const PassingBytes& passing) {
  const PlanData& data = choice.data;
  if (data.shard == 1 || data.zero_level < 2) return passing.any;
  const StateTraces& traces = *costs_.state(choice.shape, data).traces;
  const std::int64_t gathered = data.zero_level == 3 && data.reshard == ReshardAfterForward::microbatch ? 2 * traces.block.whole_param_bytes : 0;
  const std::int64_t reduced = traces.converts_gradients ? traces.block.converted_grad_bytes : traces.block.whole_grad_bytes;
  std::int64_t most = passing.any;
  if (passing.forward > 0) most = std::max(most, passing.forward + gathered);
  if (passing.weights > 0) most = std::max(most, passing.weights + gathered + traces.block.whole_grad_bytes + reduced);
  return most;
}

std::int64_t PlanBounds::gathered_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank) {
  const StateCosts& state = costs_.state(choice.shape, choice.data);
  if (choice.data.shard == 1 || choice.data.zero_level < 3 || !keeps_whole_parameters(choice.data)) return 0;
  std::int64_t bytes = 0;
  for (const StageCost& stage : stages.stages)
    if (static_cast<std::size_t>(stage.rank) == rank) bytes += stage.num_blocks * state.traces->block.whole_param_bytes + stage.stash_bytes;
  return bytes;
}

std::int64_t PlanBounds::bytes(const PlanChoice& choice) {
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  const std::vector<PassingBytes>& passing = passing_bytes(computation);
  const Stages& stages = computed(computation).stages;
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < passing.size(); ++rank)
    peak = std::max(peak, persistent_bytes(choice, stages, rank) + std::max(bytes_beside_passes(choice, passing[rank]), gathered_bytes(choice, stages, rank)));
  return peak;
}

namespace {

/// Nothing keeps less for good than all parameters, gradients and states in as many shards as there are data ranks.
PlanChoice cut_most(const PlanComputation& computation) {
  return {computation.shape, computation.pipeline, computation.recompute, {.replicate = 1, .shard = computation.shape.dp, .zero_level = 3}};
}

}  // namespace

std::int64_t PlanBounds::pipeline_bytes(const PlanComputation& computation) {
  const PlanChoice choice = cut_most(computation);
  const std::vector<PassingBytes>& passing = passing_bytes(computation);
  const Stages& stages = computed(computation).stages;
  std::int64_t peak = 0;
  for (std::size_t rank = 0; rank < passing.size(); ++rank) peak = std::max(peak, persistent_bytes(choice, stages, rank) + passing[rank].any);
  return peak;
}

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
