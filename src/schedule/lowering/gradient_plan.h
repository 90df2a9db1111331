// When the gradient of a unit is formed: at the end of a step once, or from ZeRO-2 on in every pass through a stage, in
// a buffer of its own.
#pragma once

#include "schedule/lowering/unit_passes.h"

namespace echelon {

struct FormedGradient {
  UnitKey key;
  // Positions of the passes after which it is complete: of each stage that forms it the last one.
  std::vector<int> writers;
  bool is_last = false;  // of the step
};

/// For each unit pass: the units that get a buffer before it, and the gradients that are complete after it.
struct GradientPlan {
  std::vector<std::vector<UnitKey>> opened_before;
  std::vector<std::vector<FormedGradient>> formed_after;
};

[[nodiscard]] GradientPlan gradient_plan(const UnitPasses& passes, const LoweringOptions& options);

}  // namespace echelon
