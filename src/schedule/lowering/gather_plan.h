// When a ZeRO-3 rank gathers and releases its units (Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023,
// arXiv:2304.11277). A unit is gathered `prefetch_depth` unit passes before the pass that needs it, so that the
// transfer overlaps with these. It is released after its last use, unless one of as many passes needs it again.
#pragma once

#include "schedule/lowering/unit_passes.h"

namespace echelon {

/// For each unit pass: the units gathered before it (its own, and those of the next passes), and the units released
/// after it, of which it was the last user.
struct GatherPlan {
  std::vector<std::vector<UnitKey>> before, after;
};

[[nodiscard]] GatherPlan gather_plan(const UnitPasses& passes, const LoweringOptions& options);

}  // namespace echelon
