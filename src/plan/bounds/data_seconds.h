// What the data axes add to a step at least: waits for gathers under ZeRO-3, and all that comes after the last pass.
#pragma once

#include "plan/bounds/stages.h"

namespace echelon {

/// What the bounds of a layout are made from. It refers to all of them.
struct PlanCosts {
  const PlanChoice& choice;
  const PlanStages& stages;
  const LayerCosts& layers;
  const StateCosts& state;
  const std::vector<StagePasses>& passes;  // by stage
};

/// By how much a pass of a stage takes longer than what it computes.
struct PassWait {
  std::size_t stage = 0, kind = 0;
  double seconds = 0;
};
[[nodiscard]] std::vector<PassWait> waits_of(const PlanCosts& costs);

/// What passes gather and reduce.
[[nodiscard]] PassLane lane_of(const PlanCosts& costs);

/// Before the first block is computed.
[[nodiscard]] double first_gathers(const PlanCosts& costs);
/// By when one rank alone, which has the whole model, has ended its last pass; 0 where that cannot be said.
[[nodiscard]] double single_rank_end(const PlanCosts& costs);
/// The step, if its passes end so early.
[[nodiscard]] double step_end(const PlanCosts& costs, const PassEnds& ends);

/// On a host, of all its cores for one rank of every stage: what comes to the passes once a step, or once a microbatch
/// under ZeRO-2 and 3.
[[nodiscard]] double state_core_seconds(const PlanCosts& costs);

}  // namespace echelon
