// Bytes that the fullest rank of a layout needs at least, without its blueprint. Three grades: of a layout; of a
// pipeline whatever its data axes are; and that without its schedule.
#pragma once

#include "plan/bounds/stages.h"

namespace echelon {

class PlanBytes {
 public:
  /// It refers to all three.
  PlanBytes(const PlanRequest& request, CostTable& costs, PlanStageTable& stages)
      : request_(&request), costs_(&costs), stages_(&stages) {}

  [[nodiscard]] std::int64_t of_layout(const PlanChoice& choice);
  [[nodiscard]] std::int64_t of_pipeline(const PlanComputation& computation);
  /// With one microbatch in flight, or all where every order of the schedule's kind has them.
  [[nodiscard]] std::int64_t of_any_schedule(const PlanComputation& computation);

 private:
  /// What passes need at their fullest: any; one of a block forward, and one that forms gradients of weights, beside
  /// what the data axes have there.
  struct Passing {
    std::int64_t any = 0, forward = 0, weights = 0;
  };
  [[nodiscard]] const LayerCosts& layers(const PlanComputation& computation);
  [[nodiscard]] const PlanStages& stages(const PlanComputation& computation);
  [[nodiscard]] const std::vector<Passing>& passing(const PlanComputation& computation);
  [[nodiscard]] std::int64_t persistent(const PlanChoice& choice, const PlanStages& stages, int rank);
  [[nodiscard]] std::int64_t beside_passes(const PlanChoice& choice, const Passing& passing);
  [[nodiscard]] std::int64_t gathered(const PlanChoice& choice, const PlanStages& stages, int rank);

  const PlanRequest* request_;
  CostTable* costs_;
  PlanStageTable* stages_;
  std::vector<Passing> passing_;  // by rank, of the stages with this number
  std::int64_t number_ = 0;
};

}  // namespace echelon
