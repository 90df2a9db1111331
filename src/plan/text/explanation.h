// Why a plan is the best one, in sentences that follow from its figures.
#pragma once

#include "plan/search/plan.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

/// Of a step, on average over the ranks: "compute", "exposed communication over tp", ...
[[nodiscard]] std::map<std::string, double> seconds_by_part(const Plan& plan);
[[nodiscard]] double tokens_per_second(const Plan& plan);
/// Of the rank that uses most.
[[nodiscard]] double peak_gib(const Plan& plan);
/// "compute 3.1 s (81.2 %)", ...
[[nodiscard]] std::vector<std::string> time_parts(const Plan& plan);
[[nodiscard]] std::vector<std::string> memory_parts(const Plan& plan);
/// What of the step is longer or shorter than in the best plan.
[[nodiscard]] std::vector<std::string> differences(const Plan& best, const Plan& other);
/// Where the best plan's order is not the default: what is on one node with each of them, and what the default one
/// costs.
[[nodiscard]] std::vector<std::string> order_reasons(const Plan& best, const Plan& in_default_order,
                                                     const MachineSpec& machine);
/// Where the best plan has context parallelism: what the best layout without it would cost, part by part.
[[nodiscard]] std::vector<std::string> context_reasons(const PlanResult& result);
/// Which rank has which tokens, and what other ways would take.
[[nodiscard]] std::vector<std::string> balancer_reasons(const PlanResult& result);
/// By how much the rank with the highest memory use exceeds its device.
[[nodiscard]] std::vector<std::string> misses(const Plan& plan);
/// The advice of textbooks, compared with the best plan: it says where they contradict each other.
[[nodiscard]] std::vector<std::string> rules_of_thumb(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
