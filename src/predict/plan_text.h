// What was planned, for people and for programs.
#pragma once

#include "predict/plan.h"

namespace echelon {

/// The parts of a plan in a word or two each.
[[nodiscard]] std::string pipeline_text(const PlanChoice& choice);
[[nodiscard]] std::string data_text(const PlanData& data);
[[nodiscard]] std::string recompute_text(const PlanRecompute& recompute);

[[nodiscard]] std::string to_text(const PlanResult& result, const PlanRequest& request);
/// One object: configurations, evaluated, seconds, plans; and nearest where nothing fits.
[[nodiscard]] std::string to_json(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
