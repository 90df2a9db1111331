#include "blueprint/rank_trace.h"

#include "blueprint/stage_units.h"
#include "executor/unit_state.h"

#include <algorithm>

namespace echelon {

RegionUse boundary_of(const ModelPart& part) {
  const std::int64_t num_bytes = part.boundary_sizes().num_elements() * size_of(part.options.dtype);
  RegionUse use = {.num_bytes = aligned(num_bytes)};
  use.rows.add(RowKind::local, num_bytes);
  return use;
}

/// Folds the traces of units to those of the actions of a rank.
class RankTrace::Fold {
 public:
  Fold(const RunConfig& config, int rank, const ModelPart& part, UnitTraces& units, bool trains)
      : config_(config), rank_(rank), part_(part), units_(units), trains_(trains) {
    without_units_.options = part.options;
    without_units_.pipeline_rank = part.pipeline_rank;
    without_units_.rank_of_stage = part.rank_of_stage;
    const TiedWeight tied = tied_weight_of(part.options.model, part.rank_of_stage);
    for (const StagePart& stage : part.stages)
      stages_[stage.index] = units_of({stage.layers}, part.options.model, part.options.recompute, tied).front();
  }

  /// `is_first`: the weight gradients are written, not added to.
  CallTrace trace(const Action& action, bool is_first) {
    if (const std::optional<PassKind> pass = pass_of(action.kind)) return pass_through(action, *pass, is_first);
    switch (action.kind) {
      case ActionKind::clear_gradients: return state_of_all(action.kind);
      case ActionKind::clip:
        return state_of_all(action.kind) += trace_without_units(config_, rank_, without_units_, action, trains_);
      case ActionKind::take_snapshot: return is_copied(action) ? state_of(action) : CallTrace();
      case ActionKind::open_gradients:
      case ActionKind::reduce_gradients:
      case ActionKind::store_gradients:
      case ActionKind::reduce_parts:
      case ActionKind::sum_replicas:
      case ActionKind::sum_tied:
      case ActionKind::update:
      case ActionKind::gather_parameters:
      case ActionKind::release_parameters: return state_of(action);
      default: return trace_without_units(config_, rank_, without_units_, action, trains_);
    }
  }

  /// Each unit saves its own; between two of them the stage saves what one gives to the next.
  Saved saved_by(int stage) {
    const StageUnits& units = stages_.at(stage);
    Saved saved;
    saved.stash.add(boundary_of(part_), units.num_units() - 1);
    for (const auto& [kind, count] : units.runs) {
      const UnitPasses& passes = passes_of(kind);
      saved.stash.add(passes.stash, count);
      saved.input_stash.add(passes.input_stash, count);
      saved.gradient_stash.add(passes.gradient_stash, count);
    }
    return saved;
  }

 private:
  CallTrace pass_through(const Action& action, PassKind pass, bool is_first) {
    const StageUnits& units = stages_.at(action.stage);
    if (action.unit != whole_stage) return passes_of(units.kind(action.unit)).of(pass, is_first);
    CallTrace trace;
    const auto add = [&](const UnitRun& run) {
      for (std::int64_t i = 0; i < run.count; ++i) trace += passes_of(run.kind).of(pass, is_first);
    };
    if (pass == PassKind::forward)
      std::for_each(units.runs.begin(), units.runs.end(), add);
    else
      std::for_each(units.runs.rbegin(), units.runs.rend(), add);
    return trace;
  }

  CallTrace state_of_all(ActionKind action) {
    CallTrace trace;
    for (const auto& [index, stage] : stages_) {
      for (const auto& [kind, count] : stage.runs)
        for (std::int64_t i = 0; i < count; ++i) trace += state(kind).at(action);
      if (stage.has_tied_weight) trace += state(stage.tied_weight).at(action);
    }
    return trace;
  }

  const CallTrace& state_of(const Action& action) {
    return state(stages_.at(action.stage).kind(action.unit)).at(action.kind);
  }

  bool is_copied(const Action& action) {
    if (copied_bytes_.empty()) copied_bytes_ = snapshot_bytes_of_units(part_, config_.checkpoint.snapshot_bytes);
    const std::vector<const ShardedUnit*> units = part_.units();
    const auto found = std::find(units.begin(), units.end(), &part_.unit(action));
    return copied_bytes_[static_cast<std::size_t>(found - units.begin())] > 0;
  }

  const UnitPasses& passes_of(const UnitKind& kind) { return units_.passes(kind, rank_, trains_); }
  const StateTraces& state(const UnitKind& kind) { return units_.state(kind, rank_); }

  const RunConfig& config_;
  int rank_;
  const ModelPart& part_;
  UnitTraces& units_;
  bool trains_;
  std::map<int, StageUnits> stages_;
  ModelPart without_units_;
  std::vector<std::int64_t> copied_bytes_;  // by a snapshot, by unit; empty until they are asked for
};

RankTrace::RankTrace(const RunConfig& config, int rank, const ModelPart& part, const Program& program,
                     UnitTraces& units)
    : adds_up_microbatches_(!part.units().front()->options().shards_gradients()) {
  for (const Action& action : program)
    if (computes_weight_gradients(action.kind)) first_microbatch_.try_emplace(action.stage, action.microbatch);
  Fold fold(config, rank, part, units, !first_microbatch_.empty());
  for (const StagePart& each : part.stages) saved_[each.index] = fold.saved_by(each.index);
  const bool is_split = std::any_of(program.begin(), program.end(),
                                    [](const Action& each) { return each.kind == ActionKind::backward_input; });
  if (!is_split)
    for (auto& [stage, saved] : saved_) saved.gradient_stash = {};
  for (const Action& action : program) {
    const Key key = key_of(action);
    const bool is_first = std::get<bool>(key) || !adds_up_microbatches_;
    if (const auto [known, is_new] = calls_.try_emplace(key); is_new) known->second = fold.trace(action, is_first);
  }
}

RankTrace::Key RankTrace::key_of(const Action& action) const {
  const auto first = first_microbatch_.find(action.stage);
  const bool is_first = adds_up_microbatches_ && computes_weight_gradients(action.kind) &&
                        first != first_microbatch_.end() && action.microbatch == first->second;
  return {action.kind, action.stage, action.unit, is_first};
}

}  // namespace echelon
