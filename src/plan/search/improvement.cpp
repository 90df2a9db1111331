#include "plan/search/improvement.h"

#include "base/error.h"
#include "plan/search/config_plan.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::size_t most_changes = 3;
constexpr double least_gain = 0.001;  // of the step: less is no reason to change anything

/// Another value of the same key.
auto same_key(const ChangedPlan& plan) {
  return [&plan](const ChangedPlan& each) { return each.change.change.key == plan.change.change.key; };
}

/// Of all single changes that leave the values as they are the one after which the step needs least memory; none if all
/// need as much.
std::optional<ChangedPlan> smallest_change(const Plan& current, const PlanRequest& request) {
  std::optional<ChangedPlan> least;
  for (SingleChange& change : single_changes(current.config, request.machine)) {
    if (change.change.effect != KeyEffect::none) continue;
    Plan plan = plan_of(change.config, request);
    if (is_better(PlanObjective::memory, plan, least ? least->plan : current))
      least = {std::move(change), std::move(plan)};
  }
  return least;
}

void change_together(Improvement& result, const PlanRequest& request) {
  Plan current = result.current;
  while (!current.outcome.fits() && result.together.size() < most_changes) {
    std::optional<ChangedPlan> next = smallest_change(current, request);
    if (!next) break;
    current = std::move(next->plan);
    result.together.push_back(std::move(next->change));
  }
  if (!result.together.empty()) result.changed_together = std::move(current);
}

}  // namespace

Improvement improve(const RunConfig& config, const PlanRequest& request) {
  Improvement result = {.current = plan_of(config, request), .changes = {}};
  std::vector<ChangedPlan> better;
  for (SingleChange& change : single_changes(config, request.machine)) {
    Plan plan = plan_of(change.config, request);
    ++result.num_tried;
    if (!plan.outcome.fits()) continue;
    ++result.num_fitting;
    if (!result.current.outcome.fits() ||
        plan.outcome.step_seconds < result.current.outcome.step_seconds * (1 - least_gain))
      better.push_back({std::move(change), std::move(plan)});
  }
  std::stable_sort(better.begin(), better.end(), [](const ChangedPlan& a, const ChangedPlan& b) {
    return is_better(PlanObjective::time, a.plan, b.plan);
  });
  for (ChangedPlan& each : better)
    if (result.changes.size() < most_changes && std::ranges::none_of(result.changes, same_key(each)))
      result.changes.push_back(std::move(each));
  if (result.changes.empty() && !result.current.outcome.fits()) change_together(result, request);
  return result;
}

}  // namespace echelon
