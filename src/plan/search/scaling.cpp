#include "plan/search/scaling.h"

#include "base/error.h"
#include "plan/search/cost.h"
#include "plan/search/search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

constexpr int bar_columns = 40;

}  // namespace

Scaling scaling_of(const PlanRequest& request) {
  std::set<std::int64_t> numbers = {request.num_devices};
  for (std::int64_t n = 1; n < request.num_devices; n *= 2) numbers.insert(n);
  Scaling scaling;
  std::vector<ScalingPoint>& points = scaling.points;
  for (const std::int64_t n : numbers) {
    PlanRequest part = request;
    part.num_devices = n;
    part.top = 1;
    try {
      PlanResult result = find_fitting_plans(part);
      if (result.plans.empty())
        scaling.without_plan.push_back(n);
      else
        points.push_back({n, std::move(result.plans.front()), 1, result.is_complete, result.within});
    } catch (const Error&) {  // no layout has so many ranks
      if (n == request.num_devices) throw;
      scaling.without_plan.push_back(n);
    }
  }
  for (ScalingPoint& each : points) each.price_per_million_tokens = 1e6 * price_per_token(each.plan, request);
  for (ScalingPoint& each : points)
    each.efficiency = points.front().plan.outcome.step_seconds * static_cast<double>(points.front().num_devices) /
                      (each.plan.outcome.step_seconds * static_cast<double>(each.num_devices));
  return scaling;
}

std::vector<std::string> remarks_of(const Scaling& scaling) {
  std::vector<std::string> remarks;
  if (!scaling.points.empty() && scaling.points.front().num_devices > 1)
    remarks.push_back(
        fmt::format("efficiency is relative to {} devices, the fewest on which the model fits; more of "
                    "them may exceed 100 %, since each holds less",
                    scaling.points.front().num_devices));
  if (!scaling.without_plan.empty())
    remarks.push_back(
        fmt::format("numbers of devices on which nothing fits: {}", fmt::join(scaling.without_plan, ", ")));
  if (!scaling.points.empty() && scaling.points.front().price_per_million_tokens > 0) {
    std::vector<std::string> prices;
    for (const ScalingPoint& each : scaling.points)
      prices.push_back(fmt::format("{:.4g} on {}", each.price_per_million_tokens, each.num_devices));
    remarks.push_back(fmt::format("a million tokens cost {} devices", fmt::join(prices, ", ")));
  }
  for (const ScalingPoint& each : scaling.points)
    if (!each.is_complete)
      remarks.push_back(
          fmt::format("the search over {} devices was ended (--work or --seconds gives it more): another layout may be "
                      "better by up to {:.2g} %",
                      each.num_devices, 100 * each.within));
  return remarks;
}

std::string to_text(const Scaling& scaling) {
  const std::vector<ScalingPoint>& points = scaling.points;
  if (points.empty()) return "nothing fits on so many devices or fewer\n";
  std::string text = fmt::format("{:>8} {:>12} {:>7} {:>6}  {:>4} {:>4} {:>5}  {}\n", "devices", "s/step", "eff. %",
                                 "MFU %", "tp", "pp", "dp", "efficiency");
  for (const ScalingPoint& each : points) {
    const PlanShape& shape = each.plan.choice.shape;
    text += fmt::format("{:>8} {:>12.4f} {:>7.1f} {:>6.2f}  {:>4} {:>4} {:>5}  {}\n", each.num_devices,
                        each.plan.outcome.step_seconds, 100 * each.efficiency, 100 * each.plan.outcome.mfu(), shape.tp,
                        shape.pp, shape.dp,
                        std::string(static_cast<std::size_t>(std::min(2.0, each.efficiency) * bar_columns), '#'));
  }
  for (const std::string& remark : remarks_of(scaling)) text += remark + "\n";
  return text;
}

std::string to_json(const Scaling& scaling) {
  std::string rows;
  for (const ScalingPoint& each : scaling.points)
    rows += fmt::format(
        R"({}{{"gpus": {}, "predicted_seconds": {}, "efficiency": {}, "mfu": {}, "price_per_million_tokens": {}, "complete": {}, "within": {}}})",
        rows.empty() ? "" : ", ", each.num_devices, each.plan.outcome.step_seconds, each.efficiency,
        100 * each.plan.outcome.mfu(), each.price_per_million_tokens, each.is_complete, each.within);
  return fmt::format("{{\"scaling\": [{}], \"gpus_without_plan\": [{}]}}\n", rows,
                     fmt::join(scaling.without_plan, ", "));
}

}  // namespace echelon
