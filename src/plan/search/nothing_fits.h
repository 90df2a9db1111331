// Where nothing fits: the layout that comes closest, and the smallest change that helps.
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

/// Sentences: with which of the fixed keys left open, or with how many more devices, some layout fits.
[[nodiscard]] std::vector<std::string> suggestions_for(const PlanRequest& request, KnownParts& known);

}  // namespace echelon
