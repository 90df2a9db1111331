#include "plan/bounds/bounds.h"

#include <algorithm>

namespace echelon {

PlanBounds::PlanBounds(const PlanSpace& space, const PlanRequest& request, KnownParts* known)
    : space_(&space),
      request_(&request),
      costs_(space, request, known != nullptr ? &known->passes : nullptr),
      stages_(space, known != nullptr ? &known->schedules : nullptr),
      bytes_(request, costs_, stages_) {}

PlanBounds::Ends& PlanBounds::ends_of(const PlanComputation& computation, const PlanStages& stages) {
  const auto known =
      std::find_if(ends_.begin(), ends_.end(), [&](const Ends& each) { return each.number == stages.number; });
  if (known != ends_.end()) {
    ends_.splice(ends_.begin(), ends_, known);
  } else {
    ends_.push_front({.number = stages.number, .unplayed = unplayed_ends(computation, stages)});
    if (ends_.size() > num_known_stages) ends_.pop_back();
  }
  return ends_.front();
}

const LayerCosts& PlanBounds::layers(const PlanShape& shape, const BlockOperations& recomputed,
                                     TensorPlacement placement) {
  return placement == any_placement ? costs_.layers(shape, recomputed)
                                    : costs_.layers(shape, recomputed, costs_.orders().mesh_of(shape, placement));
}

/// On a host: seconds in which its cores do what one rank of every stage has to do, for all of them. Ranks that wait
/// lend their cores, so only the sum bounds them.
double PlanBounds::on_all_cores(const PlanShape& shape, double core_seconds) const {
  if (!request_->machine.host) return 0;
  return rounding_of_bounds * static_cast<double>(shape.tp * num_gradient_ranks(shape)) * core_seconds /
         static_cast<double>(request_->machine.host->num_cores);
}

double PlanBounds::shape_seconds(const PlanShape& shape) { return shape_seconds(shape, costs_.first_layers(shape)); }

std::optional<double> PlanBounds::unexchanged_seconds(const PlanShape& shape) {
  const LayerCosts* const costs = costs_.unexchanged_layers(shape);
  if (costs == nullptr) return std::nullopt;
  return rounding_of_bounds * shape_seconds(shape, *costs);
}

double PlanBounds::shape_seconds(const PlanShape& shape, const LayerCosts& costs) const {
  double seconds = 0, core_seconds = 0, way = 0;  // way: of a microbatch to the last layer and back
  double block = no_time;                         // of a block's forward pass
  const ModelSpec& model = request_->base.model;
  for_units(StageLayers{.num_layers = model.num_hidden_layers, .has_embedding = true, .has_head = true}, model, {},
            costs.tied, [&](const UnitKind& kind, std::int64_t count) {
              constexpr auto forward = static_cast<std::size_t>(PassKind::forward);
              if (kind.role == UnitKind::Role::block) block = std::min(block, costs.of(kind).seconds[forward]);
              StageCost units;
              units.add(costs.of(kind), count);
              seconds += units.seconds[forward] + least_backward(units.seconds, BackwardKinds::both);
              core_seconds += units.core_seconds[forward] + least_backward(units.core_seconds, BackwardKinds::both);
              way += units.seconds[forward] + least_backward_input(units.seconds, BackwardKinds::both);
            });
  const auto m = static_cast<double>(shape.num_microbatches);
  const double of_ranks = seconds * m / static_cast<double>(shape.pp) + mean_fill_seconds(shape.pp, block);
  return std::max(rounding_of_bounds * std::max(of_ranks, way), on_all_cores(shape, m * core_seconds));
}

PipelineKind PlanBounds::kind_of(const PlanShape& shape, const PlanPipeline& pipeline) {
  constexpr PlanRecompute nothing = {};
  return {.ranks = &stages_.ranks({shape, pipeline, nothing}, request_->base.model),
          .backward = entry_of(pipeline.schedule).backward,
          .is_naive = pipeline.schedule == PipelineSchedule::naive,
          .holds_all = holds_all(pipeline.schedule)};
}

double PlanBounds::pipeline_seconds(const PlanComputation& computation, TensorPlacement placement) {
  const LayerCosts& placed = layers(computation.shape, computation.recompute.operations, placement);
  const double of_ranks = rounding_of_bounds * last_unplayed_end(computation, stages_.kinds(computation, placed));
  if (!request_->machine.host) return of_ranks;
  return std::max(of_ranks,
                  on_all_cores(computation.shape, core_seconds(computation, stages_.stages(computation, placed))));
}

PassEnds PlanBounds::clocked(const PlanComputation& computation, const PlanStages& stages, double transfer_seconds,
                             const PassLane& lane, const StateCosts& state) {
  std::vector<ClockedStage> clocked;
  for (const StageCost& stage : stages.stages) {
    const bool has_both = stage.num_mixtures > 0 && stage.num_mixtures < stage.num_blocks;
    const UnitSeconds& block = has_both ? state.block : stage.num_mixtures > 0 ? state.mixture : state.dense;
    clocked.push_back({.seconds = stage.seconds,
                       .least_block_seconds = stage.least_block_seconds,
                       .num_blocks = static_cast<double>(stage.num_blocks),
                       .gather = lane.has_gathers ? block.gather : 0,
                       .reduce = lane.has_reductions ? block.reduce : 0});
  }
  return clocked_ends(stages_.schedule(computation.shape, computation.pipeline), clocked, transfer_seconds, lane);
}

/// Of the passes without data axes a clock keeps what it found, as the layouts of a computation ask for it again.
PassEnds PlanBounds::ends_of(const PlanCosts& costs, double transfer_seconds, Clocking clocking) {
  const PlanComputation computation = {costs.choice.shape, costs.choice.pipeline, costs.choice.recompute};
  const std::vector<PassWait> waits = waits_of(costs);
  PassLane lane = lane_of(costs);
  PlanStages waiting;
  if (!waits.empty()) {
    waiting = costs.stages;
    for (const PassWait& each : waits) waiting.stages[each.stage].seconds[each.kind] += each.seconds;
  }
  Ends& known = ends_of(computation, costs.stages);
  PassEnds ends = {waits.empty() ? known.unplayed : unplayed_ends(computation, waiting), {}, {}, {}};
  const auto keep_later = [](std::vector<double>& a, const std::vector<double>& b) {
    if (a.empty()) a.resize(b.size(), 0);
    for (std::size_t i = 0; i < b.size(); ++i) a[i] = std::max(a[i], b[i]);
  };
  const auto keep = [&](const PassEnds& later) {
    keep_later(ends.ranks, later.ranks);
    keep_later(ends.lanes, later.lanes);
    keep_later(ends.gradients, later.gradients);
    keep_later(ends.first_gradients, later.first_gradients);
  };
  if (clocking != Clocking::none) {
    const auto [played, is_new] = known.played.try_emplace(transfer_seconds);
    if (is_new) played->second = clocked(computation, costs.stages, transfer_seconds, {}, {});
    keep(played->second);
  }
  // Nothing is computed before gradients are cleared; under ZeRO-3 gathers run at the same time.
  const std::vector<std::int64_t>& blocks = costs.stages.blocks_of_rank;
  const double cleared = static_cast<double>(*std::min_element(blocks.begin(), blocks.end())) * costs.state.block.clear;
  lane.begin = std::max(cleared, first_gathers(costs));
  for (std::vector<double>* each : {&ends.ranks, &ends.lanes, &ends.gradients, &ends.first_gradients})
    for (double& end : *each) end += lane.begin;
  if (clocking == Clocking::of_lanes && (!waits.empty() || lane.has_gathers || lane.has_reductions))
    keep(clocked(computation, waits.empty() ? costs.stages : waiting, transfer_seconds, lane, costs.state));
  return ends;
}

double PlanBounds::step_seconds(const PlanCosts& costs, double transfer_seconds, Clocking clocking) {
  const PlanComputation computation = {costs.choice.shape, costs.choice.pipeline, costs.choice.recompute};
  if (request_->machine.host) {
    const double all_cores =
        on_all_cores(costs.choice.shape, core_seconds(computation, costs.stages) + state_core_seconds(costs));
    return std::max(pipeline_seconds(computation, any_placement), all_cores);
  }
  PassEnds ends = ends_of(costs, transfer_seconds, clocking);
  if (ends.ranks.size() == 1) ends.ranks.front() = std::max(ends.ranks.front(), single_rank_end(costs));
  return rounding_of_bounds * step_end(costs, ends);
}

double PlanBounds::least_transfer_seconds(const PlanShape& shape, TensorPlacement placement) {
  const auto is_of = [&](const LeastTransfers::value_type& each) {
    return each.first.second == placement && each.first.first == shape;
  };
  if (least_transfer_ != least_transfers_.end() && is_of(*least_transfer_)) return least_transfer_->second;
  const auto [known, is_new] = least_transfers_.try_emplace({shape, placement}, no_time);
  least_transfer_ = known;
  if (!is_new) return known->second;
  for (const PlanData& data : space_->data_layouts(shape))
    for (const AxisOrder& order : costs_.orders().of(shape, data, placement))
      known->second = std::min(known->second, costs_.transfer_seconds(shape, space_->mesh_of(shape, data, order)));
  return known->second;
}

double PlanBounds::clocked_pipeline_seconds(const PlanComputation& computation, TensorPlacement placement) {
  const double unplayed = pipeline_seconds(computation, placement);
  if (request_->machine.host) return unplayed;
  const PlanStages& stages =
      stages_.stages(computation, layers(computation.shape, computation.recompute.operations, placement));
  const double transfer = least_transfer_seconds(computation.shape, placement);
  const auto [played, is_new] = ends_of(computation, stages).played.try_emplace(transfer);
  if (is_new) played->second = clocked(computation, stages, transfer, {}, {});
  const std::vector<double>& ranks = played->second.ranks;
  return std::max(unplayed, rounding_of_bounds * *std::max_element(ranks.begin(), ranks.end()));
}

PlanBounds::Placed PlanBounds::placed(const PlanComputation& computation, TensorPlacement placement) {
  const LayerCosts& placed = layers(computation.shape, computation.recompute.operations, placement);
  return {placed, stages_.stages(computation, placed), stages_.passes(computation.shape, computation.pipeline),
          placement};
}

double PlanBounds::unclocked_seconds(const PlanChoice& choice, const Placed& placed, const StateCosts& state) {
  return step_seconds({choice, placed.stages, placed.layers, state, placed.passes}, 0, Clocking::none);
}

double PlanBounds::unclocked_seconds(const PlanChoice& choice, TensorPlacement placement) {
  return unclocked_seconds(choice, placed({choice.shape, choice.pipeline, choice.recompute}, placement),
                           costs_.state(choice.shape, choice.data, placement));
}

double PlanBounds::seconds_of_any_order(const PlanChoice& choice, const Placed& placed, const StateCosts& state,
                                        bool clocks_lanes) {
  return step_seconds({choice, placed.stages, placed.layers, state, placed.passes},
                      least_transfer_seconds(choice.shape, placed.placement),
                      clocks_lanes ? Clocking::of_lanes : Clocking::of_passes);
}

double PlanBounds::seconds_of_any_order(const PlanChoice& choice, TensorPlacement placement, bool clocks_lanes) {
  return seconds_of_any_order(choice, placed({choice.shape, choice.pipeline, choice.recompute}, placement),
                              costs_.state(choice.shape, choice.data, placement), clocks_lanes);
}

double PlanBounds::seconds(const PlanChoice& choice) {
  const MeshShape mesh = space_->mesh_of(choice.shape, choice.data, choice.order);
  const LayerCosts& placed = costs_.layers(choice.shape, choice.recompute.operations, mesh);
  const PlanStages& stages = stages_.stages({choice.shape, choice.pipeline, choice.recompute}, placed);
  return step_seconds({choice, stages, placed, costs_.state(choice.shape, choice.data, choice.order),
                       stages_.passes(choice.shape, choice.pipeline)},
                      costs_.transfer_seconds(choice.shape, mesh), Clocking::of_lanes);
}

}  // namespace echelon
