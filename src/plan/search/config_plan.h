// A config as it is, timed like the planner's layouts.
#pragma once

#include "plan/search/plan.h"

#include <string>

namespace echelon {

/// The config of a file with the question's flags and settings, as `train` would run it on the question's devices.
/// Throws Error where they are not as many as --gpus.
[[nodiscard]] RunConfig read_asked_config(const std::string& path, const PlanQuestion& question);

/// Its choices are in the planner's words, also where the planner would not choose them.
[[nodiscard]] Plan plan_of(const RunConfig& config, const PlanRequest& request);

}  // namespace echelon
