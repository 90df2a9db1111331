// The names with which `plan --json` and `tune --json` tell of a plan.
#pragma once

#include "plan/search/plan.h"

#include <nlohmann/json.hpp>

namespace echelon {

[[nodiscard]] nlohmann::ordered_json fields_of(const Plan& plan, const PlanRequest& request);

/// configurations, evaluated, seconds, within: of the search; and the dtype, with what others would take.
[[nodiscard]] nlohmann::ordered_json fields_of(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
