#include "plan/bounds/bounds.h"

#include <algorithm>

namespace echelon {
namespace {

/// Seconds are summed in another order than the simulator's.
constexpr double rounding = 1 - 1e-9;

}  // namespace

PlanBounds::PlanBounds(const PlanSpace& space, const PlanRequest& request)
    : space_(&space), request_(&request), costs_(space, request), stages_(space), bytes_(request, costs_, stages_) {}

PlanBounds::Ends& PlanBounds::ends_of(const PlanComputation& computation, const PlanStages& stages) {
  if (ends_.number != stages.number) ends_ = {.number = stages.number, .unplayed = unplayed_ends(computation, stages)};
  return ends_;
}

/// On a host: seconds in which its cores do what one rank of every stage has to do, for all of them. Ranks that wait
/// lend their cores, so only the sum bounds them.
double PlanBounds::on_all_cores(const PlanShape& shape, double core_seconds) const {
  if (!request_->machine.host) return 0;
  return rounding * static_cast<double>(shape.tp * shape.dp) * core_seconds /
         static_cast<double>(request_->machine.host->num_cores);
}

double PlanBounds::shape_seconds(const PlanShape& shape) {
  const LayerCosts& costs = costs_.layers(shape, {});
  double seconds = 0, core_seconds = 0;
  for_units(StageLayers{.num_layers = request_->base.model.num_hidden_layers, .has_embedding = true, .has_head = true},
            {}, costs.tied, [&](const UnitKind& kind, std::int64_t count) {
              constexpr auto forward = static_cast<std::size_t>(PassKind::forward);
              StageCost units;
              units.add(costs.of(kind), count);
              seconds += units.seconds[forward] + least_backward(units.seconds, BackwardKinds::both);
              core_seconds += units.core_seconds[forward] + least_backward(units.core_seconds, BackwardKinds::both);
            });
  const auto m = static_cast<double>(shape.num_microbatches);
  return std::max(rounding * seconds * m / static_cast<double>(shape.pp), on_all_cores(shape, m * core_seconds));
}

double PlanBounds::pipeline_seconds(const PlanComputation& computation) {
  const PlanStages& stages =
      stages_.stages(computation, costs_.layers(computation.shape, computation.recompute.operations));
  const std::vector<double>& ends = ends_of(computation, stages).unplayed;
  return std::max(rounding * *std::max_element(ends.begin(), ends.end()),
                  on_all_cores(computation.shape, core_seconds(computation, stages)));
}

/// By rank: the end of its last pass; from a simulation of the schedule, if the seconds of a transfer are given.
std::vector<double> PlanBounds::last_passes(const PlanCosts& costs, std::optional<double> transfer_seconds) {
  const PlanComputation computation = {costs.choice.shape, costs.choice.pipeline, costs.choice.recompute};
  const std::vector<PassWait> waits = waits_of(costs);
  Ends alone = {.number = 0, .unplayed = {}};
  PlanStages waiting;
  if (!waits.empty()) {
    waiting = costs.stages;
    for (const PassWait& each : waits) waiting.stages[each.stage].seconds[each.kind] += each.seconds;
    alone.unplayed = unplayed_ends(computation, waiting);
  }
  const PlanStages& stages = waits.empty() ? costs.stages : waiting;
  Ends& known = waits.empty() ? ends_of(computation, stages) : alone;
  std::vector<double> ends = known.unplayed;
  if (!transfer_seconds) return ends;
  const auto [played, is_new] = known.played.try_emplace(*transfer_seconds);
  if (is_new) {
    StageSeconds seconds;
    for (const StageCost& stage : stages.stages) seconds.push_back(stage.seconds);
    played->second =
        last_pass_ends(stages_.schedule(computation.shape, computation.pipeline), seconds, *transfer_seconds);
  }
  for (std::size_t rank = 0; rank < ends.size(); ++rank) ends[rank] = std::max(ends[rank], played->second[rank]);
  return ends;
}

double PlanBounds::step_seconds(const PlanCosts& costs, std::optional<double> transfer_seconds) {
  const PlanComputation computation = {costs.choice.shape, costs.choice.pipeline, costs.choice.recompute};
  if (request_->machine.host) {
    const double all_cores =
        on_all_cores(costs.choice.shape, core_seconds(computation, costs.stages) + state_core_seconds(costs));
    return std::max(pipeline_seconds(computation), all_cores);
  }
  std::vector<double> ends = last_passes(costs, transfer_seconds);
  // Nothing is computed before gradients are cleared; under ZeRO-3 gathers run at the same time.
  const std::vector<std::int64_t>& blocks = costs.stages.blocks_of_rank;
  const double cleared = static_cast<double>(*std::min_element(blocks.begin(), blocks.end())) * costs.state.block.clear;
  for (double& end : ends) end += std::max(cleared, first_gathers(costs));
  if (ends.size() == 1) ends.front() = std::max(ends.front(), single_rank_end(costs));
  return rounding * step_end(costs, ends);
}

double PlanBounds::seconds_of_any_order(const PlanChoice& choice) {
  const LayerCosts& layers = costs_.layers(choice.shape, choice.recompute.operations);
  const PlanStages& stages = stages_.stages({choice.shape, choice.pipeline, choice.recompute}, layers);
  return step_seconds(
      {choice, stages, layers, costs_.state(choice.shape, choice.data), stages_.passes(choice.shape, choice.pipeline)},
      std::nullopt);
}

double PlanBounds::seconds(const PlanChoice& choice, bool plays) {
  const MeshShape mesh = space_->mesh_of(choice.shape, choice.data, choice.order);
  const LayerCosts& layers = costs_.layers(choice.shape, choice.recompute.operations, mesh);
  const PlanStages& stages = stages_.stages({choice.shape, choice.pipeline, choice.recompute}, layers);
  const PlanCosts costs = {choice, stages, layers, costs_.state(choice.shape, choice.data, choice.order),
                           stages_.passes(choice.shape, choice.pipeline)};
  return plays ? step_seconds(costs, costs_.transfer_seconds(choice.shape, mesh)) : step_seconds(costs, std::nullopt);
}

}  // namespace echelon
