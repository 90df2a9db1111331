// "Why not tp 8?": two layouts, part by part. Each is the best one with some choices made by the asker.
#pragma once

#include "plan/search/plan.h"

#include <string>
#include <vector>

namespace echelon {

struct ComparedLayout {
  std::string name;   // as it was asked for
  Plan plan;          // the best one; where none fits, the one that needs least memory
  double within = 0;  // as in PlanResult
};

struct PlanComparison {
  ComparedLayout first, second;
};

/// Of one layout with the best of all, or of two. A layout is "tp=8,pp=4": short names (tp, pp, mbs, zero, recompute)
/// or keys of the config. Throws Error for what is no layout, and where no layout with these choices is legal.
[[nodiscard]] PlanComparison compare_plans(const PlanRequest& request, const std::vector<std::string>& layouts);

[[nodiscard]] std::string to_text(const PlanComparison& comparison);
/// Both plans as in to_json(PlanResult), and what the second takes more than the first.
[[nodiscard]] std::string to_json(const PlanComparison& comparison, const PlanRequest& request);

}  // namespace echelon
