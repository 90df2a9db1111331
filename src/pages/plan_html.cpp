#include "pages/plan_html.h"

#include "base/text/counted.h"
#include "pages/run_page.h"
#include "pages/simulate_html.h"
#include "plan/search/cost.h"
#include "plan/text/explanation.h"
#include "plan/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace echelon {
namespace {

std::string request_text(const PlanRequest& request) {
  return fmt::format("{} on {} {} of {}", page_model(request.base.model),
                     text_of(HtmlUnit::number, static_cast<double>(request.num_devices)),
                     plural(request.num_devices, "device"), request.machine.name);
}

std::string context_part(const PlanShape& shape) {
  return shape.cp > 1 ? fmt::format(" × cp {}", context_text(shape)) : "";
}

bool compares_prices(const PlanRequest& request) { return request.objective == PlanObjective::cost; }

HtmlTable::Row row_of(const Plan& plan, std::size_t place, const PlanRequest& request) {
  const PlanShape& shape = plan.choice.shape;
  HtmlTable::Row row = {
      .cells = {std::to_string(place), text_of(HtmlUnit::seconds, plan.outcome.step_seconds),
                text_of(HtmlUnit::fraction, plan.outcome.mfu()),
                text_of(HtmlUnit::bytes, static_cast<double>(plan.outcome.peak_memory_bytes())),
                fmt::format("{}{}{}", shape.tp, shape.sequence_parallel ? " sp" : "", context_part(shape)),
                std::to_string(shape.pp), std::to_string(shape.dp),
                fmt::format("{} × {}", shape.num_microbatches, shape.micro_batch_size), pipeline_text(plan.choice),
                data_text(plan.choice), recompute_text(plan.choice.recompute)}};
  if (request.base.model.has_experts()) row.cells.insert(row.cells.begin() + 5, expert_text(plan.config));
  if (compares_prices(request))
    row.cells.insert(row.cells.begin() + 1, {std::to_string(plan.config.mesh_shape().num_ranks()),
                                             fmt::format("{:.4g}", 1e6 * price_per_token(plan, request))});
  return row;
}

std::string with_sign(double seconds) {
  return fmt::format("{}{}", seconds < 0 ? "−" : "+", text_of(HtmlUnit::seconds, std::abs(seconds)));
}

/// The parts of the step that differ most.
std::string difference(const Plan& best, const Plan& other) {
  std::map<std::string, double> more;
  for (const auto& part : page_segments(other.outcome.parts)) more[part.name] += part.amount;
  for (const auto& part : page_segments(best.outcome.parts)) more[part.name] -= part.amount;
  std::vector<std::pair<std::string, double>> parts(more.begin(), more.end());
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  const double longer = other.outcome.step_seconds - best.outcome.step_seconds,
               least = 0.005 * best.outcome.step_seconds;
  std::string text = fmt::format("{:+.1f} % ({})", 100 * longer / best.outcome.step_seconds, with_sign(longer));
  for (std::size_t i = 0; i < std::min<std::size_t>(4, parts.size()); ++i)
    if (std::abs(parts[i].second) >= least)
      text += fmt::format("{} {} {}", i == 0 ? ":" : ",", with_sign(parts[i].second), parts[i].first);
  return text;
}

HtmlTable table_of(const PlanResult& result, const PlanRequest& request) {
  const bool has_prices = compares_prices(request);
  HtmlTable table = {
      .title = "Plans",
      .note = fmt::format("Best first; below each, {}. {}.",
                          has_prices ? "what its tokens cost more than those of the best one"
                                     : "by how much its step is longer than the best one, and which parts of it make "
                                       "most of that",
                          pipeline_footnote),
      .columns = {{"#", true},
                  {"step", true},
                  {"MFU", true},
                  {"memory", true},
                  {"tp", true},
                  {"pp", true},
                  {"dp", true},
                  {"microbatches", true},
                  {"schedule"},
                  {"data"},
                  {"recompute"}}};
  if (request.base.model.has_experts()) table.columns.insert(table.columns.begin() + 5, {"ep", true});
  if (has_prices) table.columns.insert(table.columns.begin() + 1, {{"devices", true}, {"a million tokens", true}});
  for (const Plan& plan : result.plans) {
    const Plan& best = result.plans.front();
    table.rows.push_back(row_of(plan, table.rows.size() + 1, request));
    if (table.rows.size() > 1)
      table.rows.back().remark = has_prices ? price_difference(best, plan, request) : difference(best, plan);
  }
  if (!table.rows.empty()) table.rows.front().is_best = true;
  if (result.nearest) {
    table.title = "Nothing fits";
    table.note = "This is the layout that needs least memory.";
    table.rows.push_back(row_of(*result.nearest, 1, request));
    table.rows.back().remark = fmt::format("{}", fmt::join(misses(*result.nearest), "; "));
  }
  return table;
}

}  // namespace

HtmlReport plan_page(const PlanResult& result, const PlanRequest& request) {
  const Plan& best = result.nearest ? *result.nearest : result.plans.front();
  const Blueprint blueprint(best.config);
  // repeated, since plans are stored without their timelines
  const Simulation step = simulated(best.config, request);
  DocumentOffsets first_sequence;
  if (request.documents != nullptr) request.documents->documents()(0, first_sequence);
  HtmlReport page = simulation_page({.blueprint = blueprint,
                                     .result = step,
                                     .machine_spec = request.machine,
                                     .machine = request.machine.name,
                                     .profile = request.profile,
                                     .first_sequence = first_sequence});
  page.title = request_text(request);
  page.summary = fmt::format(
      "{} {}, {} of them timed in {}. {}", text_of(HtmlUnit::number, static_cast<double>(result.num_configurations)),
      plural(result.num_configurations, "legal layout"),
      text_of(HtmlUnit::number, static_cast<double>(result.num_evaluated)), text_of(HtmlUnit::seconds, result.seconds),
      result.nearest ? "None fits; below the first table is the one that needs least memory."
                     : "Below the first table is the best one.");
  if (!result.is_complete)
    page.summary +=
        fmt::format(" The search was ended after {}: no layout is better than the first one by more than {:.2g} %.",
                    text_of(HtmlUnit::seconds, result.seconds), 100 * result.within);
  page.tables = {table_of(result, request)};
  page.notes = result.nearest ? result.suggestions : rules_of_thumb(result, request);
  if (!request.note.empty()) page.notes.insert(page.notes.begin(), request.note);
  return page;
}

HtmlReport scaling_page(const Scaling& scaling, const PlanRequest& request) {
  HtmlReport page;
  page.title = request_text(request);
  page.summary = "The best plan of each number of devices, the batch being the same.";
  HtmlCurve::Series seconds = {.name = "best plan"}, perfect = {.name = "perfect scaling"},
                    efficiency = {.name = "efficiency"};
  HtmlTable table = {.title = "Plans",
                     .columns = {{"devices", true},
                                 {"step", true},
                                 {"efficiency", true},
                                 {"MFU", true},
                                 {"memory", true},
                                 {"tp", true},
                                 {"pp", true},
                                 {"dp", true},
                                 {"schedule"},
                                 {"data"},
                                 {"recompute"}}};
  const bool has_experts = request.base.model.has_experts();
  if (has_experts) table.columns.insert(table.columns.begin() + 6, {"ep", true});
  for (const ScalingPoint& point : scaling.points) {
    const auto devices = static_cast<double>(point.num_devices);
    const PlanShape& shape = point.plan.choice.shape;
    for (HtmlCurve::Series* series : {&seconds, &perfect, &efficiency}) series->x.push_back(devices);
    seconds.y.push_back(point.plan.outcome.step_seconds);
    perfect.y.push_back(seconds.y.front() * seconds.x.front() / devices);
    efficiency.y.push_back(point.efficiency);
    table.rows.push_back(
        {.cells = {text_of(HtmlUnit::number, devices), text_of(HtmlUnit::seconds, point.plan.outcome.step_seconds),
                   text_of(HtmlUnit::fraction, point.efficiency), text_of(HtmlUnit::fraction, point.plan.outcome.mfu()),
                   text_of(HtmlUnit::bytes, static_cast<double>(point.plan.outcome.peak_memory_bytes())),
                   std::to_string(shape.tp) + context_part(shape), std::to_string(shape.pp), std::to_string(shape.dp),
                   pipeline_text(point.plan.choice), data_text(point.plan.choice),
                   recompute_text(point.plan.choice.recompute)}});
    std::vector<std::string>& cells = table.rows.back().cells;
    if (has_experts) cells.insert(cells.begin() + 6, expert_text(point.plan.config));
  }
  page.tables = {std::move(table)};
  page.notes = remarks_of(scaling, request);
  page.curves = {{.title = "Step time",
                  .x_name = "devices",
                  .unit = HtmlUnit::seconds,
                  .series = {seconds, perfect},
                  .is_log_x = true},
                 {.title = "Efficiency",
                  .x_name = "devices",
                  .unit = HtmlUnit::fraction,
                  .series = {efficiency},
                  .is_log_x = true}};
  return page;
}

}  // namespace echelon
