// The pages that `echelon plan --html` writes.
#pragma once

#include "plan/search/plan.h"
#include "plan/search/scaling.h"
#include "report/html/html_report.h"

namespace echelon {

/// The plans in their order, why, and the step of the best one as `simulate --html` shows it.
[[nodiscard]] HtmlReport plan_page(const PlanResult& result, const PlanRequest& request);

/// Step time and efficiency over numbers of devices.
[[nodiscard]] HtmlReport scaling_page(const Scaling& scaling, const PlanRequest& request);

}  // namespace echelon
