#include "plan/search/scaling.h"

#include "base/error.h"
#include "base/text/written_number.h"
#include "plan/search/cost.h"
#include "plan/search/search.h"
#include "predict/published/promise.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

constexpr int bar_columns = 40;

/// Twice as many each time; and all whole nodes, unless these are many.
std::set<std::int64_t> numbers_of_devices(const PlanRequest& request) {
  constexpr std::int64_t most_nodes = 16;
  std::set<std::int64_t> numbers = {request.num_devices};
  for (std::int64_t n = request.fewest_devices; n < request.num_devices; n *= 2) numbers.insert(n);
  const std::int64_t of_node = request.machine.host ? 1 : request.machine.nodes.front().num_devices;
  const std::int64_t first = (request.fewest_devices + of_node - 1) / of_node, last = request.num_devices / of_node;
  if (request.machine.host || of_node == 1 || last - first >= most_nodes) return numbers;
  for (std::int64_t nodes = first; nodes <= last; ++nodes) numbers.insert(nodes * of_node);
  return numbers;
}

/// What of a training depends on the number of devices: its days, or the tokens of its hours.
std::string remark_of_trainings(const Scaling& scaling, const TrainingRequest& asked) {
  std::vector<std::string> trainings;
  for (const ScalingPoint& each : scaling.points) {
    const LongRun& training = *each.training;
    const std::string price =
        training.price > 0 ? fmt::format(" for {}", asked.tokens ? price_text(training) : written(training.price)) : "";
    trainings.push_back(asked.tokens ? fmt::format("{} days{} on {}", days_text(training), price, each.num_devices)
                                     : fmt::format("{}{} on {}", tokens_text(training), price, each.num_devices));
  }
  const LongRun& first = *scaling.points.front().training;
  std::vector<std::string> goodputs;
  for (const ScalingPoint& each : scaling.points)
    goodputs.push_back(fmt::format("{:.1f} % on {}", 100 * each.training->goodput, each.num_devices));
  const std::string what = asked.tokens ? fmt::format("a training of {} steps takes", grouped(first.num_steps))
                                        : fmt::format("tokens in {} hours:", written(*asked.hours));
  return fmt::format("{} {} devices{}", what, fmt::join(trainings, ", "),
                     first.failures ? fmt::format("; with failures and checkpoints, of which {} is training",
                                                  fmt::join(goodputs, ", "))
                                    : "");
}

/// The best published utilisation is one of the model's size, whatever the number of devices.
std::string remark_of_utilisation(const Scaling& scaling, const MachineSpec& machine) {
  std::vector<std::int64_t> above;
  std::string highest;
  double most = 0;
  for (const ScalingPoint& each : scaling.points) {
    const std::string warning = warning_of(each.plan.outcome, each.plan.config, machine);
    if (warning.empty()) continue;
    above.push_back(each.num_devices);
    if (each.plan.outcome.mfu() > most) highest = warning;
    most = std::max(most, each.plan.outcome.mfu());
  }
  return above.empty()
             ? ""
             : fmt::format("on {} devices utilisation exceeds what was published: {}", fmt::join(above, ", "), highest);
}

/// Of the first of these plans that has it.
std::string remark_of_runs(const Scaling& scaling, const PlanRequest& request) {
  for (const ScalingPoint& each : scaling.points)
    if (std::string text = without_runs_text(each.plan.config, request.machine, request.profile); !text.empty())
      return text;
  return "";
}

std::string remark_of_hours(const Scaling& scaling, const TrainingRequest& asked) {
  if (const auto fewest = fewest_in_time(scaling))
    return fmt::format("the fewest of these devices that train {} tokens within --hours={}: {}", written(*asked.tokens),
                       *asked.hours, *fewest);
  return fmt::format("none of these numbers of devices trains {} tokens within --hours={}", written(*asked.tokens),
                     *asked.hours);
}

}  // namespace

Scaling scaling_of(const PlanRequest& request) {
  const std::set<std::int64_t> numbers = numbers_of_devices(request);
  Scaling scaling;
  KnownParts known;
  std::vector<ScalingPoint>& points = scaling.points;
  for (const std::int64_t n : numbers) {
    PlanRequest part = request;
    part.num_devices = n;
    part.top = 1;
    try {
      PlanResult result = find_fitting_plans(part, &known);
      if (result.plans.empty())
        scaling.without_plan.push_back(n);
      else
        points.push_back({n, std::move(result.plans.front()), 1, result.is_complete, result.within});
    } catch (const Error&) {  // no layout has so many ranks
      if (n == request.num_devices && points.empty()) throw;
      scaling.without_plan.push_back(n);
    }
  }
  for (ScalingPoint& each : points) {
    each.price_per_million_tokens = 1e6 * price_per_token(each.plan, request);
    if (request.long_training) each.training = long_run(each.plan, request);
  }
  for (ScalingPoint& each : points)
    each.efficiency = points.front().plan.outcome.step_seconds * static_cast<double>(points.front().num_devices) /
                      (each.plan.outcome.step_seconds * static_cast<double>(each.num_devices));
  return scaling;
}

std::optional<std::int64_t> fewest_in_time(const Scaling& scaling) {
  for (const ScalingPoint& each : scaling.points)
    if (each.training && each.training->is_in_time.value_or(false)) return each.num_devices;
  return std::nullopt;
}

std::vector<std::string> remarks_of(const Scaling& scaling, const PlanRequest& request) {
  std::vector<std::string> remarks;
  if (!request.note.empty()) remarks.push_back(request.note);
  if (!scaling.points.empty() && scaling.points.front().num_devices > 1)
    remarks.push_back(
        fmt::format("efficiency is relative to {} devices, the fewest {}; more of them may exceed 100 %, since each "
                    "holds less",
                    scaling.points.front().num_devices,
                    scaling.without_plan.empty() ? "that were asked for" : "on which the model fits"));
  if (!scaling.without_plan.empty())
    remarks.push_back(
        fmt::format("numbers of devices on which nothing fits: {}", fmt::join(scaling.without_plan, ", ")));
  if (!scaling.points.empty() && scaling.points.front().price_per_million_tokens > 0) {
    std::vector<std::string> prices;
    for (const ScalingPoint& each : scaling.points)
      prices.push_back(fmt::format("{} on {}", written(each.price_per_million_tokens), each.num_devices));
    remarks.push_back(fmt::format("a million tokens cost {} devices", fmt::join(prices, ", ")));
  }
  for (const std::string& remark : {remark_of_utilisation(scaling, request.machine), remark_of_runs(scaling, request)})
    if (!remark.empty()) remarks.push_back(remark);
  if (!scaling.points.empty() && request.long_training) {
    remarks.push_back(remark_of_trainings(scaling, *request.long_training));
    if (scaling.points.front().training->is_in_time)
      remarks.push_back(remark_of_hours(scaling, *request.long_training));
  }
  for (const ScalingPoint& each : scaling.points)
    if (!each.is_complete)
      remarks.push_back(
          fmt::format("the search over {} devices was ended (--work or --seconds gives it more): another layout may be "
                      "better by up to {:.2g} %",
                      each.num_devices, 100 * each.within));
  return remarks;
}

std::string to_text(const Scaling& scaling, const PlanRequest& request) {
  const std::vector<ScalingPoint>& points = scaling.points;
  if (points.empty()) return "nothing fits on so many devices or fewer\n";
  const bool has_context =
      std::any_of(points.begin(), points.end(), [](const ScalingPoint& each) { return each.plan.choice.shape.cp > 1; });
  const auto context = [&](const std::string& word) { return has_context ? fmt::format(" {:>16}", word) : ""; };
  std::string text = fmt::format("{:>8} {:>12} {:>18} {:>7} {:>6}  {:>4}{} {:>4} {:>5}  {}\n", "devices", "s/step",
                                 "80 % interval", "eff. %", "MFU %", "tp", context("cp"), "pp", "dp", "efficiency");
  for (const ScalingPoint& each : points) {
    const PlanShape& shape = each.plan.choice.shape;
    const SecondsRange range = seconds_range(each.plan.outcome, request.machine, request.profile);
    const std::string interval =
        range.low < range.high ? fmt::format("{:.3g} to {:.3g}", range.low, range.high) : "none";
    text += fmt::format("{:>8} {:>12.4f} {:>18} {:>7.1f} {:>6.2f}  {:>4}{} {:>4} {:>5}  {}\n", each.num_devices,
                        each.plan.outcome.step_seconds, interval, 100 * each.efficiency, 100 * each.plan.outcome.mfu(),
                        shape.tp, context(context_text(shape)), shape.pp, shape.dp,
                        std::string(static_cast<std::size_t>(std::min(2.0, each.efficiency) * bar_columns), '#'));
  }
  for (const std::string& remark : remarks_of(scaling, request)) text += remark + "\n";
  return text;
}

std::string to_json(const Scaling& scaling, const PlanRequest& request) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const ScalingPoint& each : scaling.points) {
    const PlanShape& shape = each.plan.choice.shape;
    rows.push_back({{"gpus", each.num_devices},
                    {"predicted_seconds", each.plan.outcome.step_seconds},
                    {"efficiency", each.efficiency},
                    {"mfu", 100 * each.plan.outcome.mfu()},
                    {"price_per_million_tokens", price_json(each.price_per_million_tokens)},
                    {"tensor_parallel_degree", shape.tp},
                    {"pipeline_parallel_degree", shape.pp},
                    {"context_parallel_degree", shape.cp},
                    {"context_parallel_method", name_of(shape.exchange.method)},
                    {"data_parallel_degree", shape.dp},
                    {"complete", each.is_complete},
                    {"within", each.within}});
    rows.back().update(promise_json(each.plan.outcome, each.plan.config, request.machine, request.profile));
    if (each.training) rows.back()["training"] = to_json(*each.training);
  }
  Json json = {{"dtype", name_of(request.base.training.dtype)},
               {"profile", request.profile.name},
               {"rates", rates_text(request.profile, request.machine)},
               {"scaling", rows},
               {"gpus_without_plan", scaling.without_plan}};
  if (!request.note.empty()) json["note"] = request.note;
  if (const auto fewest = fewest_in_time(scaling)) json["fewest_gpus_within_hours"] = *fewest;
  return json.dump() + "\n";
}

}  // namespace echelon
