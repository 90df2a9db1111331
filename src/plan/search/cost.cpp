#include "plan/search/cost.h"

#include "base/error.h"
#include "plan/search/long_run.h"
#include "plan/search/search.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace echelon {

double price_per_token(const Plan& plan, const PlanRequest& request) {
  constexpr double seconds_of_an_hour = 3600;
  double price = 0, devices = 0;  // of the first devices of the machine
  const auto wanted = static_cast<double>(plan.config.mesh_shape().num_ranks());
  for (const NodeSpec& node : request.machine.nodes) {
    const double there = node.count == 0
                             ? wanted - devices
                             : std::min(wanted - devices, static_cast<double>(node.count * node.num_devices));
    price += there * node.price_per_device_hour;
    devices += there;
  }
  const auto tokens = static_cast<double>(plan.config.training.global_batch_size * plan.config.training.seq_len);
  return price * plan.outcome.step_seconds / seconds_of_an_hour / tokens;
}

nlohmann::ordered_json price_json(double price) { return price > 0 ? nlohmann::ordered_json(price) : nullptr; }

bool is_in_time(const Plan& plan, const PlanRequest& request) {
  return !request.long_training || long_run(plan, request).is_in_time.value_or(true);
}

PlanResult find_cheapest_plans(const PlanRequest& request) {
  PlanResult all;
  KnownParts known;
  for (std::int64_t n = request.num_devices; n >= 1; --n) {
    if (request.num_devices % n != 0) continue;
    PlanRequest part = request;
    part.num_devices = n;
    part.objective = PlanObjective::time;
    part.top = 1;
    try {
      PlanResult result = find_fitting_plans(part, &known);
      all.num_configurations += result.num_configurations;
      all.num_evaluated += result.num_evaluated;
      all.num_played += result.num_played;
      all.num_stepped += result.num_stepped;
      all.work += result.work;
      all.seconds += result.seconds;
      all.is_complete &= result.is_complete;
      all.num_proven = all.is_complete ? static_cast<int>(all.plans.size() + result.plans.size()) : 0;
      all.within = std::max(all.within, result.within);
      for (Plan& plan : result.plans) all.plans.push_back(std::move(plan));
    } catch (const Error&) {  // no layout has so many ranks
      if (n == request.num_devices) throw;
    }
  }
  std::stable_sort(all.plans.begin(), all.plans.end(), [&](const Plan& a, const Plan& b) {
    const auto order = [&](const Plan& each) {
      return std::pair(!is_in_time(each, request), price_per_token(each, request));
    };
    return order(a) < order(b);
  });
  if (static_cast<int>(all.plans.size()) > request.top) all.plans.resize(static_cast<std::size_t>(request.top));
  return all;
}

}  // namespace echelon
