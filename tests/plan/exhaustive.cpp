#include "plan/exhaustive.h"

#include "base/clock.h"

#include <algorithm>
#include <array>
#include <map>

namespace echelon {
namespace {

using Degrees = std::array<std::int64_t, 6>;
Degrees degrees_of_listed(const PlanShape& shape) {
  return {shape.tp, shape.pp, shape.dp, shape.cp, shape.ep, shape.etp};
}

}  // namespace

PlanResult find_plans_exhaustively(const PlanRequest& request) {
  const double start = now_seconds();
  const PlanSpace space(request);
  PlanResult result;
  std::map<Degrees, Plan> best;
  space.for_each([&](const PlanChoice& choice) {
    Plan plan = evaluate(request, choice);
    ++result.num_configurations;
    ++result.num_evaluated;
    const auto [held, is_new] = best.try_emplace(degrees_of_listed(choice.shape), plan);
    if (!is_new && is_better(request.objective, plan, held->second)) held->second = std::move(plan);
  });
  for (auto& [degrees, plan] : best) result.plans.push_back(std::move(plan));
  std::sort(result.plans.begin(), result.plans.end(),
            [&](const Plan& a, const Plan& b) { return is_better(request.objective, a, b); });
  if (!result.plans.front().outcome.fits()) result.nearest = result.plans.front();
  std::erase_if(result.plans, [](const Plan& plan) { return !plan.outcome.fits(); });
  if (static_cast<int>(result.plans.size()) > request.top) result.plans.resize(static_cast<std::size_t>(request.top));
  result.seconds = now_seconds() - start;
  return result;
}

}  // namespace echelon
