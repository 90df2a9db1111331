// The search for the best layouts (docs/internals/planner.md).
#pragma once

#include "plan/bounds/bounds.h"
#include "plan/search/plan.h"

namespace echelon {

/// The best `request.top` plans whose tensor, pipeline and data degrees differ. Throws Error if no layout is legal.
[[nodiscard]] PlanResult find_plans(const PlanRequest& request);

/// The same without suggestions and what the default order takes. `known`: what searches for other numbers of
/// devices have found out, and will.
[[nodiscard]] PlanResult find_fitting_plans(const PlanRequest& request, KnownParts* known = nullptr);

}  // namespace echelon
