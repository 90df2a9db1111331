#include "plan/bounds/layout_steps.h"

#include "blueprint/blueprint.h"
#include "spec/config/pipeline.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_known_actions = 1 << 21;  // some hundred MiB
constexpr std::size_t most_known_times = 1 << 12;

/// Folds the costs of units to those of a layout's actions, and their bytes to what its ranks hold.
class LayoutFold {
 public:
  LayoutFold(const RunConfig& config, LayoutTimes& times, CostTable& costs, const PlanChoice& choice,
             const LayoutProgram& program, const std::vector<StageUnits>& stages)
      : config_(config),
        times_(times),
        layers_(costs.layers(choice.shape, choice.recompute.operations)),
        unit_states_(costs.traces(choice.shape, choice.data)),
        program_(program) {
    without_units_.options = layer_options(config, 0);
    without_units_.rank_of_stage = program.rank_of_stage;
    for (const StageUnits& units : stages) add(units);
  }

  /// Fills the seconds of a rank's works in.
  void fill(int rank, double launch_seconds, std::vector<Work>& works) {
    without_units_.pipeline_rank = pipeline_rank_ = rank;
    for (const Action& action : program_.programs[static_cast<std::size_t>(rank)]) {
      const LaneTime time = time_of(action);
      Work& work = works[static_cast<std::size_t>(action.id)];
      work.seconds = time.seconds;
      work.issue = time.issue;
    }
    if (config_.training.cuda_graphs) issue_as_graph(launch_seconds, works);
  }

  [[nodiscard]] std::int64_t peak_bytes(int rank) const {
    const Program& program = program_.programs[static_cast<std::size_t>(rank)];
    std::vector<std::int64_t> changes(program.size() + 1, 0);
    for (const BufferLifetime& lifetime : program_.lifetimes[static_cast<std::size_t>(rank)]) {
      const std::int64_t bytes = bytes_of(lifetime, program);
      changes[static_cast<std::size_t>(lifetime.first)] += bytes;
      changes[static_cast<std::size_t>(lifetime.last) + 1] -= bytes;
    }
    std::int64_t live = 0, peak = 0;
    for (const std::int64_t change : changes) peak = std::max(peak, live += change);
    return persistent_bytes(rank) + peak;
  }

 private:
  /// Units of one kind, one after the other.
  struct Run {
    const UnitCost* passes = nullptr;  // null of a tied weight
    const UnitState* state = nullptr;
    std::int64_t count = 0;
  };
  struct Stage {
    std::vector<Run> runs = {};
    Run tied_weight = {};
    bool has_tied_weight = false;
    StageCost cost = {};

    [[nodiscard]] const Run& run_of(std::int64_t unit) const {
      for (const Run& run : runs) {
        if (unit < run.count) return run;
        unit -= run.count;
      }
      return tied_weight;
    }
  };
  void add(const StageUnits& units) {
    Stage& stage = stages_.emplace_back();
    stage.has_tied_weight = units.has_tied_weight;
    if (units.has_tied_weight || units.borrows_tied_weight)
      stage.tied_weight = {nullptr, &unit_states_.of(units.tied_weight), 1};
    for (const auto& [kind, count] : units.runs) {
      stage.runs.push_back({&layers_.of(kind), &unit_states_.of(kind), count});
      stage.cost.add(*stage.runs.back().passes, count);
    }
    stage.cost.stash_bytes += (stage.cost.num_units - 1) * layers_.boundary_bytes;
  }

  [[nodiscard]] bool is_of(std::size_t stage, int rank) const { return program_.rank_of_stage[stage] == rank; }
  [[nodiscard]] const Stage& stage(int index) const { return stages_[static_cast<std::size_t>(index)]; }

  [[nodiscard]] const LaneTime& state(const UnitState& unit, ActionKind kind) const {
    return times_.state(pipeline_rank_, unit, kind);
  }

  LaneTime state_of_all(ActionKind kind) {
    LaneTime time;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!is_of(i, pipeline_rank_)) continue;
      for (const Run& run : stages_[i].runs) time.then(state(*run.state, kind), run.count);
      if (stages_[i].has_tied_weight) time.then(state(*stages_[i].tied_weight.state, kind));
    }
    return time;
  }

  [[nodiscard]] const LaneTime& once(const Action& action) {
    const int peer = lane_of(action.kind) == Lane::transfer ? program_.peer_of(action) : -1;
    return times_.once(action, peer, config_, without_units_);
  }

  LaneTime time_of(const Action& action) {
    if (const std::optional<PassKind> pass = pass_of(action.kind)) return pass_time(action, *pass);
    switch (action.kind) {
      case ActionKind::clear_gradients: return state_of_all(action.kind);
      case ActionKind::clip: {
        LaneTime time = state_of_all(action.kind);
        time.then(once(action));
        return time;
      }
      case ActionKind::load_batch:
      case ActionKind::count_tokens:
      case ActionKind::report:
      case ActionKind::send_forward:
      case ActionKind::send_backward:
      case ActionKind::receive_forward:
      case ActionKind::receive_backward: return once(action);
      default: return state(*stage(action.stage).run_of(action.unit).state, action.kind);
    }
  }

  LaneTime pass_time(const Action& action, PassKind pass) {
    // In buffers of their own the gradients of every microbatch are the first ones.
    const bool is_first = program_.options.shards_gradients ||
                          action.microbatch == program_.first_to_compute[static_cast<std::size_t>(action.stage)];
    const auto kind = static_cast<std::size_t>(pass);
    const Stage& of = stage(action.stage);
    const auto passes = [&](const Run& run) -> const LaneTime& {
      return times_.passes(pipeline_rank_, *run.passes, is_first)[kind];
    };
    if (action.unit != whole_stage) return passes(of.run_of(action.unit));
    LaneTime time;
    const auto add = [&](const Run& run) { time.then(passes(run), run.count); };
    if (pass == PassKind::forward)
      std::for_each(of.runs.begin(), of.runs.end(), add);
    else
      std::for_each(of.runs.rbegin(), of.runs.rend(), add);
    return time;
  }

  [[nodiscard]] std::int64_t bytes_of(const BufferLifetime& lifetime, const Program& program) const {
    const Stage& of = stage(lifetime.stage);
    switch (lifetime.key.role) {
      case BufferRole::stash: return of.cost.stash_bytes;
      case BufferRole::input_stash: return of.cost.input_stash_bytes;
      case BufferRole::gradient_stash: return of.cost.gradient_stash_bytes;
      case BufferRole::workspace: return workspace_bytes(program[static_cast<std::size_t>(lifetime.first)]);
      case BufferRole::gathered_param: return of.run_of(lifetime.unit).state->whole_param_bytes;
      case BufferRole::unreduced_grad: return of.run_of(lifetime.unit).state->whole_grad_bytes;
      case BufferRole::converted_grad: {
        const UnitState& state = *of.run_of(lifetime.unit).state;
        return lifetime.is_owned ? state.converted_part_bytes : state.converted_grad_bytes;
      }
      default: return layers_.boundary_bytes;
    }
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Action& pass) const {
    const auto kind = static_cast<std::size_t>(*pass_of(pass.kind));
    const Stage& of = stage(pass.stage);
    return pass.unit == whole_stage ? of.cost.workspace_bytes[kind]
                                    : of.run_of(pass.unit).passes->costs->bytes.workspace_bytes(kind);
  }

  [[nodiscard]] std::int64_t persistent_bytes(int rank) const {
    std::int64_t bytes = unit_states_.constant_bytes;
    for (const std::int64_t size : layers_.batch_elements)
      bytes += aligned(config_.num_microbatches() * size * size_of(DType::int32));
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!is_of(i, rank)) continue;
      for (const Run& run : stages_[i].runs) bytes += run.count * run.state->persistent_bytes;
      if (stages_[i].has_tied_weight) bytes += stages_[i].tied_weight.state->persistent_bytes;
    }
    return bytes + snapshot_bytes(rank);
  }

  /// Of the last units of the rank, as far as checkpoint.snapshot_bytes has room.
  [[nodiscard]] std::int64_t snapshot_bytes(int rank) const {
    if (!config_.checkpoint.saves_asynchronously()) return 0;
    const std::int64_t limit = config_.checkpoint.snapshot_bytes;
    std::int64_t bytes = 0;
    bool has_room = true;
    const auto add = [&](const UnitState& unit, std::int64_t count) {
      for (; count > 0 && has_room; --count) {
        has_room = limit < 0 || bytes + unit.snapshot_bytes <= limit;
        if (has_room) bytes += unit.snapshot_bytes;
      }
    };
    for (std::size_t i = stages_.size(); i-- > 0;) {
      if (!is_of(i, rank)) continue;
      if (stages_[i].has_tied_weight) add(*stages_[i].tied_weight.state, 1);
      for (auto run = stages_[i].runs.rbegin(); run != stages_[i].runs.rend(); ++run) add(*run->state, run->count);
    }
    return bytes;
  }

  const RunConfig& config_;
  LayoutTimes& times_;
  const LayerCosts& layers_;
  const UnitStates& unit_states_;
  const LayoutProgram& program_;
  ModelPart without_units_;
  std::vector<Stage> stages_;
  int pipeline_rank_ = 0;
};

}  // namespace

LayoutProgram& LayoutSteps::program_of(const PlanChoice& choice, const RunConfig& config) {
  const UnitStates& state = costs_->traces(choice.shape, choice.data);
  ProgramKey key = {static_cast<std::int64_t>(choice.pipeline.schedule),
                    choice.shape.pp,
                    choice.pipeline.num_virtual,
                    choice.shape.num_microbatches,
                    reduces_gradients(choice.shape, choice.data),
                    num_shards(choice.shape, choice.data) > 1 ? choice.data.zero_level : 0,
                    choice.data.replicate > 1,
                    static_cast<std::int64_t>(choice.data.reshard),
                    state.embedding().sums_replicas,
                    state.head().sums_replicas};
  state.for_blocks([&](const UnitState& block) { key.push_back(block.sums_replicas); });
  key.insert(key.end(), choice.pipeline.layout.counts.begin(), choice.pipeline.layout.counts.end());
  if (const auto found = known_by_key_.find(key); found != known_by_key_.end()) {
    known_.splice(known_.begin(), known_, found->second);
    return *known_.front().program;
  }
  const Schedule schedule = pipeline_schedule(config);
  const auto& stages = space_->stages_of(schedule.num_stages, choice.pipeline.layout);
  const LoweringOptions options =
      lowering_options(config, schedule.rank_of_stage,
                       stage_shapes(units_of(stages, config.model, recompute_of(choice.recompute),
                                             tied_weight_of(config.model, schedule.rank_of_stage)),
                                    [&](const UnitKind& kind) { return state.of(kind).sums_replicas; }));
  const auto size_of_program = [](const LayoutProgram& program) {
    std::int64_t size = 0;
    for (const Program& each : program.programs) size += static_cast<std::int64_t>(each.size());
    return size;
  };
  known_.push_front({key, std::make_unique<LayoutProgram>(schedule, options)});
  known_by_key_.emplace(std::move(key), known_.begin());
  num_known_actions_ += size_of_program(*known_.front().program);
  num_lowered_ += size_of_program(*known_.front().program);
  while (num_known_actions_ > most_known_actions && known_.size() > 1) {
    num_known_actions_ -= size_of_program(*known_.back().program);
    known_by_key_.erase(known_.back().key);
    known_.pop_back();
  }
  return *known_.front().program;
}

/// The loss is summed from the rank of the last stage on.
LayoutTimes& LayoutSteps::times_of(const PlanChoice& choice, const RunConfig& config) {
  if (times_.size() > most_known_times) times_.clear();
  const auto [known, is_new] =
      times_.try_emplace({choice.shape, choice.data, choice.order, entry_of(choice.pipeline.schedule).placement});
  if (is_new) known->second = std::make_unique<LayoutTimes>(config, request_->machine, costs_->timer());
  return *known->second;
}

std::optional<LayoutStep> LayoutSteps::play(const PlanChoice& choice) {
  const MachineSpec& machine = request_->machine;
  if (machine.host) return std::nullopt;
  const RunConfig config = space_->config_of(choice);
  const std::int64_t num_lowered_before = num_lowered_;
  LayoutTimes& times = times_of(choice, config);
  if (times.has_several_kinds()) return std::nullopt;
  LayoutProgram& program = program_of(choice, config);
  const auto num_stages = static_cast<std::int64_t>(program.rank_of_stage.size());
  LayoutFold fold(config, times, *costs_, choice, program,
                  units_of(space_->stages_of(num_stages, choice.pipeline.layout), config.model,
                           recompute_of(choice.recompute), tied_weight_of(config.model, program.rank_of_stage)));
  const bool is_regular = times.is_regular() && has_equal_expert_groups(choice.shape, machine);
  LayoutStep step = {.is_exact = is_regular, .num_lowered = num_lowered_ - num_lowered_before};
  for (int rank = 0; rank < static_cast<int>(program.programs.size()); ++rank) {
    step.num_actions += static_cast<std::int64_t>(program.programs[static_cast<std::size_t>(rank)].size());
    fold.fill(rank, machine.nodes.front().device.launch_seconds,
              program.work.ranks[static_cast<std::size_t>(rank)].works);
    step.live_bytes = std::max(step.live_bytes, fold.peak_bytes(rank));
  }
  step.seconds = program.play.end(program.work);
  return step;
}

}  // namespace echelon
