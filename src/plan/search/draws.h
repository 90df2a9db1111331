// Does the ranking survive the uncertainty of the rates? The listed plans, timed again over draws of them.
#pragma once

#include "plan/search/plan.h"

namespace echelon {

/// Times the plans with each draw of predict/software/uncertainty.h. None where there is nothing to compare, or where
/// the rates were not borrowed.
[[nodiscard]] std::optional<PlanDraws> draws_of(const std::vector<Plan>& plans, const PlanRequest& request);

/// "the first layout is the fastest in 10 of 12 draws of the rates; ...".
[[nodiscard]] std::string to_text(const PlanDraws& draws);

}  // namespace echelon
