#include "plan/search/plan.h"

#include "plan/space/choices.h"

#include <cmath>
#include <utility>

namespace echelon {

double comparable(double seconds) {
  int exponent = 0;
  const double fraction = std::frexp(seconds, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 32)), exponent - 32);
}

bool is_better(PlanObjective objective, const Plan& a, const Plan& b) {
  if (a.outcome.fits() != b.outcome.fits()) return a.outcome.fits();
  const auto by_time = [](const Plan& each) {
    return std::pair(comparable(each.outcome.step_seconds), static_cast<double>(each.outcome.peak_memory_bytes()));
  };
  const auto by_memory = [](const Plan& each) {
    return std::pair(static_cast<double>(each.outcome.peak_memory_bytes()), comparable(each.outcome.step_seconds));
  };
  if (objective == PlanObjective::memory || !a.outcome.fits()) return by_memory(a) < by_memory(b);
  return by_time(a) < by_time(b);
}

Simulation simulated(const RunConfig& config, const PlanRequest& request) {
  SimulationOptions options;
  if (request.documents != nullptr) options.profile = request.documents->profile_of(config);
  return simulate(Blueprint(config), request.machine, options);
}

Plan evaluate(const PlanRequest& request, const PlanChoice& choice) {
  Plan plan = {choice, config_of(request, choice), {}};
  plan.outcome = simulated(plan.config, request);
  plan.outcome.timeline = {};
  return plan;
}

}  // namespace echelon
