// Every layout of the space, one after the other: what the search must agree with.
#pragma once

#include "plan/search/search.h"

namespace echelon {

/// What find_plans() gives, by timing every layout.
[[nodiscard]] PlanResult find_plans_exhaustively(const PlanRequest& request);

}  // namespace echelon
