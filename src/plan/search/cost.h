// The cheapest token: of every number of devices that divides the one asked for, the fastest plan; the others may do
// something else.
#pragma once

#include "plan/search/plan.h"

#include <nlohmann/json_fwd.hpp>

namespace echelon {

/// Those with the cheapest tokens, of all numbers of devices that divide the request's; first those whose training ends
/// within the hours that are asked for.
[[nodiscard]] PlanResult find_cheapest_plans(const PlanRequest& request);
/// In the unit of price_per_device_hour.
[[nodiscard]] double price_per_token(const Plan& plan, const PlanRequest& request);
/// null for the 0 of an unknown price.
[[nodiscard]] nlohmann::ordered_json price_json(double price);
/// Whether the tokens that are asked for take no more than the hours; true if one of them is not named.
[[nodiscard]] bool is_in_time(const Plan& plan, const PlanRequest& request);

}  // namespace echelon
