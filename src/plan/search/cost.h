// The cheapest token: of every number of devices that divides the one asked for, the fastest plan; the others may do
// something else.
#pragma once

#include "plan/search/plan.h"

namespace echelon {

/// Those with the cheapest tokens, of all numbers of devices that divide the request's.
[[nodiscard]] PlanResult find_cheapest_plans(const PlanRequest& request);
/// In the unit of price_per_device_hour.
[[nodiscard]] double price_per_token(const Plan& plan, const PlanRequest& request);

}  // namespace echelon
