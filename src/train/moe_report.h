// How evenly the experts of a mixture were loaded in a step.
#pragma once

#include "engine/step.h"
#include "report/step_report.h"

namespace echelon {

/// Of the last step, which trained; none of a model without experts.
[[nodiscard]] std::optional<MoeReport> moe_report(const Step& step, const RunConfig& config);

}  // namespace echelon
