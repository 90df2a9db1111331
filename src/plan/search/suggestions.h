// Where nothing fits: the smallest change that helps.
#pragma once

#include "plan/bounds/unit_costs.h"
#include "plan/search/plan.h"

namespace echelon {

/// Sentences: with which of the fixed keys left open, or with how many more devices, some layout fits.
[[nodiscard]] std::vector<std::string> suggestions_for(const PlanRequest& request, KnownParts& known);

}  // namespace echelon
