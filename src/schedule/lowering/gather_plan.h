// When a rank of ZeRO-3 has which units gathered (Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023,
// arXiv:2304.11277): each is gathered one pass of a unit ahead of the one that needs it, so that the transfer overlaps
// with that one, and released behind its last use for the time being.
#pragma once

#include "schedule/lowering/unit_passes.h"

namespace echelon {

/// For each unit pass: what is gathered before it (its own units, and those of the next one), and what is released
/// after it, which it was the last to use.
struct GatherPlan {
  std::vector<std::vector<UnitKey>> before, after;
};

[[nodiscard]] GatherPlan gather_plan(const UnitPasses& passes, const LoweringOptions& options);

}  // namespace echelon
