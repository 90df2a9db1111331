// The pages that `echelon plan --html` writes.
#pragma once

#include "plan/search/plan.h"
#include "plan/search/scaling.h"
#include "report/html/html_report.h"

namespace echelon {

/// The ranked plans, the reasons, and the step of the best plan as in `simulate --html`.
[[nodiscard]] HtmlReport plan_page(const PlanResult& result, const PlanRequest& request);

/// Step time and efficiency over the number of devices.
[[nodiscard]] HtmlReport scaling_page(const Scaling& scaling, const PlanRequest& request);

}  // namespace echelon
