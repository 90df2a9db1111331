#include "plan/search/tune.h"

#include "base/error.h"
#include "plan/search/search.h"

#include <algorithm>

namespace echelon {
namespace {

/// Seconds of the tried layouts on the request's machine under scales.
ScaledSeconds seconds_of(const std::vector<TunedPlan>& tried, const MachineSpec& machine) {
  return [&](const CostScales& scales) {
    const MachineSpec changed = scaled(machine, scales);
    std::vector<double> seconds;
    for (const TunedPlan& each : tried) seconds.push_back(simulate(Blueprint(each.plan.config), changed).step_seconds);
    return seconds;
  };
}

}  // namespace

const TunedPlan& Tuning::fastest() const {
  return *std::min_element(tried.begin(), tried.end(), [](const TunedPlan& a, const TunedPlan& b) {
    return a.measured_seconds < b.measured_seconds;
  });
}

double Tuning::measured_seconds(const RunConfig& config) const {
  const std::string layout = layout_text(config);
  const auto found = std::find_if(tried.begin(), tried.end(),
                                  [&](const TunedPlan& each) { return layout_text(each.plan.config) == layout; });
  return found == tried.end() ? 0 : found->measured_seconds;
}

Tuning tune(const PlanRequest& request, const StepTimer& seconds_of_step) {
  const PlanResult plans = find_plans(request);
  require(!plans.plans.empty(), "no layout of the model fits on '{}'; echelon plan prints how much memory is missing",
          request.machine.name);
  Tuning tuning;
  std::vector<double> measured;
  for (const Plan& plan : plans.plans) {
    measured.push_back(seconds_of_step(plan.config));
    tuning.tried.push_back({plan, measured.back()});
  }
  const ScaledSeconds predicted = seconds_of(tuning.tried, request.machine);
  tuning.scales = fit_cost_scales(measured, predicted);
  const std::vector<double> before = predicted({}), after = predicted(tuning.scales);
  for (std::size_t i = 0; i < after.size(); ++i) tuning.tried[i].refitted_seconds = after[i];
  tuning.error_before = mean_relative_error(before, measured);
  tuning.error_after = mean_relative_error(after, measured);
  PlanRequest on_tuned = request;
  tuning.machine = scaled(request.machine, tuning.scales);
  tuning.machine.has_measured_rates = true;
  on_tuned.machine = tuning.machine;
  tuning.again = find_plans(on_tuned);
  return tuning;
}

}  // namespace echelon
