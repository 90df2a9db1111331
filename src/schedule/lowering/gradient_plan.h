// When the gradient of a unit is complete: once per step, or, from ZeRO-2 on, in every pass through a stage, in a
// separate buffer.
#pragma once

#include "schedule/lowering/unit_passes.h"

namespace echelon {

struct CompleteGradient {
  UnitKey key;
  // Positions of the passes after which it is complete: the last one of each stage that computes it.
  std::vector<int> writers;
  bool is_last = false;  // of the step
};

/// For each unit pass: the units that get a buffer before it, and the gradients that are complete after it.
struct GradientPlan {
  std::vector<std::vector<UnitKey>> opened_before;
  std::vector<std::vector<CompleteGradient>> complete_after;
};

[[nodiscard]] GradientPlan gradient_plan(const UnitPasses& passes, const LoweringOptions& options);

}  // namespace echelon
