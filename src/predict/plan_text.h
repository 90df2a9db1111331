// What was planned, for people and for programs.
#pragma once

#include "predict/plan.h"

namespace echelon {

[[nodiscard]] std::string to_text(const PlanResult& result, const PlanRequest& request);
/// One object: configurations, evaluated, seconds, plans; and nearest where nothing fits.
[[nodiscard]] std::string to_json(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
