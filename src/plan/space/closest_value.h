// What a fixed choice would have to be.
#pragma once

#include "plan/space/request.h"

#include <string>
#include <string_view>

namespace echelon {

/// Of a fixed key, with whose value no layout is legal: the closest value with which some are, in TOML syntax. Empty if
/// there is none, since other keys contradict each other too.
[[nodiscard]] std::string closest_value(const PlanRequest& request, std::string_view key);

}  // namespace echelon
