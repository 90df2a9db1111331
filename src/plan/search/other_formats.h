// What a plan would take in the formats that the planner did not choose.
#pragma once

#include "plan/search/plan.h"

namespace echelon {

/// The layout of `plan` in each other 16-bit or 32-bit format of the machine, fastest format first. Empty where the
/// request names its dtype.
[[nodiscard]] std::vector<Plan> in_other_formats(const Plan& plan, const PlanRequest& request);

/// "dtype float16, the fastest of 'v100', since none is named; ...". Empty where the request names its dtype.
[[nodiscard]] std::string format_sentence(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
