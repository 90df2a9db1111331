#include "plan/bounds/stages.h"

#include "spec/config/pipeline.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr auto forward = static_cast<std::size_t>(PassKind::forward),
               backward = static_cast<std::size_t>(PassKind::backward),
               backward_input = static_cast<std::size_t>(PassKind::backward_input),
               backward_weight = static_cast<std::size_t>(PassKind::backward_weight);

int rank_of_stage(int stage, int num_ranks, Placement placement) {
  return placement == Placement::loop || stage < num_ranks ? stage % num_ranks : 2 * num_ranks - 1 - stage;
}

/// Of all cores of a host for one rank, whichever microbatch it is.
double core_seconds_of(const UnitCost& unit, std::size_t kind) {
  return std::min(unit.costs->of(kind, true).core_seconds, unit.costs->of(kind, false).core_seconds);
}

/// Whether they have the same units, of which all blocks are of one kind.
bool have_same_units(const StageLayers& a, const StageLayers& b, const ModelSpec& model) {
  if (a.num_layers != b.num_layers || a.has_embedding != b.has_embedding || a.has_head != b.has_head) return false;
  const auto has_one_kind = [&](const StageLayers& each) {
    return model.end_of_kind_from(each.first_layer) >= each.first_layer + each.num_layers;
  };
  return a.num_layers == 0 ||
         (has_one_kind(a) && has_one_kind(b) && model.kind_of(a.first_layer) == model.kind_of(b.first_layer));
}

StageCost cost_of(const StageLayers& layers, const PlanRecompute& recompute, const LayerCosts& costs) {
  StageCost stage;
  for_units(layers, *costs.model, recompute_of(recompute), costs.tied,
            [&](const UnitKind& kind, std::int64_t count) { stage.add(costs.of(kind), count); });
  stage.stash_bytes += (stage.num_units - 1) * costs.boundary_bytes;     // between units
  if (!layers.has_embedding) stage.stash_bytes += costs.boundary_bytes;  // the stage's input, which lives as long
  stage.flow_bytes = std::min<std::int64_t>(stage.num_units - 1, 2) * costs.boundary_bytes +
                     (layers.has_head ? 0 : costs.boundary_bytes);
  return stage;
}

}  // namespace

Recompute recompute_of(const PlanRecompute& recompute) {
  Recompute blocks = {.operations = recompute.operations};
  if (recompute.num_blocks > 0) blocks.num_blocks = recompute.num_blocks;
  return blocks;
}

void StageCost::add(const UnitCost& unit, std::int64_t count) {
  const bool is_block = unit.kind.role == UnitKind::Role::block;
  for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
    const double of_units = static_cast<double>(count) * unit.seconds[kind];
    seconds[kind] += of_units;
    core_seconds[kind] += static_cast<double>(count) * core_seconds_of(unit, kind);
    workspace_bytes[kind] = std::max(workspace_bytes[kind], unit.costs->bytes.workspace_bytes(kind));
    if (!is_block) continue;
    least_block_seconds[kind] =
        first_block == nullptr ? unit.seconds[kind] : std::min(least_block_seconds[kind], unit.seconds[kind]);
    block_seconds[kind] += of_units;
  }
  if (is_block) {
    if (first_block == nullptr) first_block = &unit;
    last_block = &unit;
    num_blocks += count;
    if (unit.kind.layer.has_experts) num_mixtures += count;
  }
  stash_bytes += count * unit.costs->bytes.stash.num_bytes;
  input_stash_bytes += count * unit.costs->bytes.input_stash.num_bytes;
  gradient_stash_bytes += count * unit.costs->bytes.gradient_stash.num_bytes;
  num_units += count;
}

double least_backward(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds) {
  const double split = seconds[backward_input] + seconds[backward_weight];
  switch (kinds) {
    case BackwardKinds::fused: return seconds[backward];
    case BackwardKinds::split: return split;
    case BackwardKinds::both: return std::min(seconds[backward], split);
  }
  return 0;
}

double least_backward_input(const std::array<double, num_pass_kinds>& seconds, BackwardKinds kinds) {
  switch (kinds) {
    case BackwardKinds::fused: return seconds[backward];
    case BackwardKinds::split: return seconds[backward_input];
    case BackwardKinds::both: return std::min(seconds[backward], seconds[backward_input]);
  }
  return 0;
}

namespace {

/// What the passes of a stage take, in all microbatches or on the way of one.
struct StageWays {
  double there = 0, back = 0;
  double all = 0, weights = 0;
};

StageWays ways_of(const StageCost& stage, const PlanComputation& computation, BackwardKinds kinds) {
  const auto m = static_cast<double>(computation.shape.num_microbatches);
  const double whole = least_backward(stage.seconds, kinds), back = least_backward_input(stage.seconds, kinds);
  return {.there = stage.seconds[forward],
          .back = back,
          .all = m * (stage.seconds[forward] + whole),
          .weights = kinds == BackwardKinds::fused ? 0 : m * std::max(0.0, whole - back)};
}

/// `visit_stages(visit)` calls visit(rank, ways) for one stage after the other.
template <class VisitStages>
std::vector<double> unplayed_ends(const PlanComputation& computation, const VisitStages& visit_stages) {
  struct Rank {
    double all = 0, weights = 0, way_there = 0, way_back = 0;
    bool is_reached = false;
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(computation.shape.pp));
  double there = 0, back = 0;
  visit_stages([&](int index, const StageWays& stage) {
    Rank& rank = ranks[static_cast<std::size_t>(index)];
    if (!rank.is_reached) {
      rank.way_there = there;
      rank.way_back = back;
      rank.is_reached = true;
    }
    there += stage.there;
    back += stage.back;
    rank.all += stage.all;
    rank.weights += stage.weights;
  });
  // The naive schedule has one microbatch after the other; any has one that goes to the last stage and back.
  const bool is_naive = computation.pipeline.schedule == PipelineSchedule::naive;
  double first_rank = static_cast<double>(is_naive ? computation.shape.num_microbatches : 1) * (there + back);
  std::vector<double> ends;
  ends.reserve(ranks.size());
  for (const Rank& rank : ranks) {
    ends.push_back(rank.all + rank.way_there);
    // weights' gradients may come while the last gradient goes back.
    first_rank = std::max(first_rank, ends.back() - rank.weights + rank.way_back);
  }
  ends.front() = std::max(ends.front(), first_rank);
  return ends;
}

}  // namespace

std::vector<double> unplayed_ends(const PlanComputation& computation, const PlanStages& stages) {
  return unplayed_ends(computation, [&](const auto& visit) {
    for (const StageCost& stage : stages.stages) visit(stage.rank, ways_of(stage, computation, stages.backward_kinds));
  });
}

double last_unplayed_end(const PlanComputation& computation, const StageKinds& stages) {
  const BackwardKinds backward_kinds = entry_of(computation.pipeline.schedule).backward;
  std::vector<StageWays> ways;
  ways.reserve(stages.costs.size());
  for (const StageCost& kind : stages.costs) ways.push_back(ways_of(kind, computation, backward_kinds));
  const std::vector<double> ends = unplayed_ends(computation, [&](const auto& visit) {
    for (std::size_t i = 0; i < stages.of.kinds.size(); ++i) visit(stages.of.ranks[i], ways[stages.of.kinds[i]]);
  });
  return *std::max_element(ends.begin(), ends.end());
}

double core_seconds(const PlanComputation& computation, const PlanStages& stages) {
  double sum = 0;
  for (const StageCost& stage : stages.stages)
    sum += stage.core_seconds[forward] + least_backward(stage.core_seconds, stages.backward_kinds);
  return static_cast<double>(computation.shape.num_microbatches) * sum;
}

const PlanStages& PlanStageTable::stages(const PlanComputation& computation, const LayerCosts& layers) {
  const auto known = std::find_if(known_stages_.begin(), known_stages_.end(), [&](const KnownStages& each) {
    return each.layers == &layers && each.are_of(computation);
  });
  if (known != known_stages_.end()) {
    known_stages_.splice(known_stages_.begin(), known_stages_, known);
  } else {
    if (known_stages_.size() < num_known_stages) known_stages_.emplace_back();
    known_stages_.splice(known_stages_.begin(), known_stages_, std::prev(known_stages_.end()));
    KnownStages& oldest = known_stages_.front();  // whose memory is used again
    oldest.shape = computation.shape;
    oldest.pipeline = computation.pipeline;
    oldest.recompute = computation.recompute;
    oldest.layers = &layers;
    make(computation, layers, oldest.stages);
  }
  return known_stages_.front().stages;
}

StageKinds PlanStageTable::kinds(const PlanComputation& computation, const LayerCosts& layers) {
  const StageRanks& of = ranks(computation, *layers.model);
  const PlanRecompute& recompute = computation.recompute;
  const auto number = std::hash<const void*>()(&of) / alignof(StageRanks) * 31 +
                      std::hash<const void*>()(&layers) / alignof(LayerCosts) +
                      static_cast<std::size_t>(recompute.num_blocks) * 7;
  KnownKinds& known = kinds_[number % kinds_.size()];
  if (known.of == &of && known.layers == &layers && known.recompute == recompute) return {of, known.costs};
  known.of = &of;
  known.layers = &layers;
  known.recompute = recompute;
  known.costs.clear();
  for (const std::size_t first : of.firsts) known.costs.push_back(cost_of((*of.stages)[first], recompute, layers));
  return {of, known.costs};
}

const StageRanks& PlanStageTable::ranks(const PlanComputation& computation, const ModelSpec& model) {
  const auto& [shape, pipeline, recompute] = computation;
  const Placement placement = entry_of(pipeline.schedule).placement;
  const std::vector<StageLayers>& stages = space_->stages_of(shape.pp * pipeline.num_virtual, pipeline.layout);
  const auto [known, is_new] = ranks_.try_emplace({&stages, shape.pp, placement});
  StageRanks& made = known->second;
  if (!is_new) return made;
  const std::vector<std::size_t>& first_equal = first_equals(stages, model);
  made.stages = &stages;
  made.blocks_of_rank.assign(static_cast<std::size_t>(shape.pp), 0);
  made.mixtures_of_rank = made.blocks_of_rank;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (first_equal[i] == i) {
      made.kinds.push_back(made.firsts.size());
      made.firsts.push_back(i);
    } else {
      made.kinds.push_back(made.kinds[first_equal[i]]);
    }
    made.ranks.push_back(rank_of_stage(static_cast<int>(i), static_cast<int>(shape.pp), placement));
    const auto rank = static_cast<std::size_t>(made.ranks.back());
    made.blocks_of_rank[rank] += stages[i].num_layers;
    for (std::int64_t layer = 0; layer < stages[i].num_layers; ++layer)
      made.mixtures_of_rank[rank] += model.kind_of(stages[i].first_layer + layer).has_experts ? 1 : 0;
  }
  for (int rank = 0; rank < static_cast<int>(shape.pp); ++rank) {
    StageRanks::RankKind kind = {.rank = rank,
                                 .is_first = made.ranks.front() == rank,
                                 .is_last = made.ranks.back() == rank,
                                 .num_stages = std::vector<std::int64_t>(made.firsts.size(), 0)};
    for (std::size_t i = 0; i < stages.size(); ++i) kind.num_stages[made.kinds[i]] += made.ranks[i] == rank ? 1 : 0;
    if (std::ranges::find(made.rank_kinds, kind) == made.rank_kinds.end()) made.rank_kinds.push_back(std::move(kind));
  }
  return made;
}

void PlanStageTable::make(const PlanComputation& computation, const LayerCosts& layers, PlanStages& made) {
  const auto& [of, costs] = kinds(computation, layers);
  made.blocks_of_rank = of.blocks_of_rank;
  made.mixtures_of_rank = of.mixtures_of_rank;
  made.backward_kinds = entry_of(computation.pipeline.schedule).backward;
  made.number = ++num_made_;
  made.stages.clear();
  made.stages.reserve(of.kinds.size());
  for (std::size_t i = 0; i < of.kinds.size(); ++i) made.stages.emplace_back(costs[of.kinds[i]]).rank = of.ranks[i];
}

const std::vector<RankStates>& PlanStageTable::states(const PlanShape& shape, const PlanPipeline& pipeline,
                                                      const ModelSpec& model) {
  const KnownSchedule& schedule = known(shape, pipeline);
  const std::vector<StageLayers>& stages = space_->stages_of(shape.pp * pipeline.num_virtual, pipeline.layout);
  const auto [known, is_new] = states_.try_emplace({&schedule, &stages});
  if (is_new) known->second = states_of_kinds(schedule.states, first_equals(stages, model));
  return known->second;
}

const std::vector<std::size_t>& PlanStageTable::first_equals(const std::vector<StageLayers>& stages,
                                                             const ModelSpec& model) {
  const auto [known, is_new] = first_equals_.try_emplace(&stages);
  for (std::size_t i = 0; is_new && i < stages.size(); ++i) {
    const auto is_equal = [&](const StageLayers& each) { return have_same_units(each, stages[i], model); };
    const auto end = stages.begin() + static_cast<std::ptrdiff_t>(i);  // blocks of several kinds equal no others
    known->second.push_back(static_cast<std::size_t>(std::find_if(stages.begin(), end, is_equal) - stages.begin()));
  }
  return known->second;
}

std::vector<StagePasses> passes_of_stages(const CompactSchedule& schedule) {
  std::vector<StagePasses> passes(static_cast<std::size_t>(schedule.num_stages()));
  std::vector<int> open(passes.size(), 0);  // microbatches that went forward and have passes left
  const auto num_microbatches = static_cast<std::size_t>(schedule.num_microbatches);
  std::vector<int> left(passes.size() * num_microbatches, 0);  // backward passes of a stage and microbatch
  const auto left_of = [&](const CompactPass& pass) -> int& {
    return left[pass.stage * num_microbatches + pass.microbatch];
  };
  for (const std::vector<CompactPass>& order : schedule.ranks) {
    int before = -1;
    for (const CompactPass& pass : order)
      if (pass.kind != PassKind::forward) ++left_of(pass);
    for (const CompactPass& pass : order) {
      StagePasses& own = passes[pass.stage];
      const bool is_behind_own = before == pass.stage;
      before = pass.stage;
      ++own.all;
      if (is_behind_own) ++own.behind_own;
      if (pass.kind == PassKind::forward) {
        if (open[pass.stage]++ > 0) continue;
        ++own.openings;
        if (is_behind_own) ++own.open_behind_own;
      } else if (--left_of(pass) == 0) {
        --open[pass.stage];
      }
    }
  }
  return passes;
}

const KnownSchedule& PlanStageTable::known(const PlanShape& shape, const PlanPipeline& pipeline) {
  const auto key = std::tuple(pipeline.schedule, shape.pp, pipeline.num_virtual, shape.num_microbatches);
  const auto found = schedules_->find(key);
  if (found != schedules_->end()) return found->second;
  const Schedule schedule = pipeline_schedule(space_->config_of({shape, pipeline, {}, {.replicate = shape.dp}}));
  KnownSchedule own = {compact(schedule, entry_of(pipeline.schedule).backward), {}, {}};
  own.passes = passes_of_stages(own.schedule);
  own.states = states_of(own.schedule);
  return schedules_->emplace(key, std::move(own)).first->second;
}

}  // namespace echelon
