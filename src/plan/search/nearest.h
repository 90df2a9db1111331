// What comes closest to fitting where nothing fits.
#pragma once

#include "plan/search/tree.h"

namespace echelon {

struct NearestPlan {
  Plan plan;
  bool is_proven = false;          // that no layout needs less memory
  std::int64_t num_evaluated = 0;  // as in PlanResult
};

/// The layout that needs least memory: proven where that takes little work, else the best of some.
[[nodiscard]] NearestPlan find_nearest_plan(PlanTables& tables);

}  // namespace echelon
