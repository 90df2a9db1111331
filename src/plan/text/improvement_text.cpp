#include "plan/search/improvement.h"

#include "base/text/counted.h"
#include "plan/search/tune.h"
#include "plan/text/explanation.h"
#include "plan/text/fields.h"
#include "predict/published/promise.h"

#include <fmt/ranges.h>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

std::string current_text(const Plan& plan, const PlanRequest& request) {
  const TrainingConfig& t = plan.config.training;
  std::string text =
      fmt::format("as it is: {}, {} of {} of {} tokens on {} of '{}'\n{} in {:.2f} GiB\n", layout_text(plan.config),
                  name_of(t.dtype), counted(t.global_batch_size, "sequence"), t.seq_len,
                  counted(plan.config.mesh_shape().num_ranks(), "device"), request.machine.name,
                  promise_text(plan.outcome, plan.config, request.machine, request.profile), peak_gib(plan));
  if (plan.outcome.fits()) return text;
  text += "it does not fit:\n";
  for (const std::string& line : misses(plan)) text += "  " + line + "\n";
  return text;
}

std::string change_text(const ChangedPlan& changed, const Plan& current, const PlanRequest& request) {
  const KeyChange& change = changed.change.change;
  const Plan& plan = changed.plan;
  std::string text =
      fmt::format("{} = {} instead of {}: {:.4f} s/step ({}) in {:.2f} GiB", change.key, change.is, change.was,
                  plan.outcome.step_seconds, range_text(plan.outcome, plan.config, request.machine, request.profile),
                  peak_gib(plan));
  for (const KeyChange& with : changed.change.with) text += fmt::format(", with {} = {}", with.key, with.is);
  text += change.effect == KeyEffect::none ? "\n" : "; it changes how values are rounded\n";
  const std::string warning = warning_of(plan.outcome, plan.config, request.machine);
  if (!warning.empty()) text += "  " + warning + "\n";
  for (const std::string& line : differences(current, plan)) text += "  " + line + "\n";
  return text;
}

/// Why there is no single change, and what several do.
std::string reason_of(const Improvement& improvement) {
  if (improvement.current.outcome.fits()) return "no single change makes the step shorter";
  if (improvement.together.empty()) return "it does not fit, and no change needs less memory; use more devices";
  return improvement.changed_together->outcome.fits()
             ? "no single change makes it fit; together these do"
             : "nothing that was tried makes it fit; together these need least memory, so use more devices";
}

std::string together_text(const Improvement& improvement, const PlanRequest& request) {
  std::string text;
  for (const SingleChange& each : improvement.together) {
    text += fmt::format("  {} = {} instead of {}", each.change.key, each.change.is, each.change.was);
    for (const KeyChange& with : each.with) text += fmt::format(", with {} = {}", with.key, with.is);
    text += "\n";
  }
  if (!improvement.changed_together) return text;
  const Plan& plan = *improvement.changed_together;
  return text + fmt::format("  {} in {:.2f} GiB\n",
                            promise_text(plan.outcome, plan.config, request.machine, request.profile), peak_gib(plan));
}

}  // namespace

std::string to_text(const Improvement& improvement, const PlanRequest& request) {
  std::string text = current_text(improvement.current, request);
  text += fmt::format("timed at {}\n\n", rates_text(request.profile, request.machine));
  const std::string tried =
      fmt::format("of {} that train would take, {} fit", improvement.num_tried, improvement.num_fitting);
  if (improvement.changes.empty())
    return text + fmt::format("{} ({})\n", reason_of(improvement), tried) + together_text(improvement, request);
  text += fmt::format("The single changes that help most ({}):\n", tried);
  for (std::size_t i = 0; i < improvement.changes.size(); ++i)
    text += fmt::format("\n{}. {}", i + 1, change_text(improvement.changes[i], improvement.current, request));
  return text;
}

std::string to_json(const Improvement& improvement, const PlanRequest& request) {
  Json changes = Json::array();
  for (const ChangedPlan& each : improvement.changes) {
    const KeyChange& change = each.change.change;
    Json with = Json::object(), parts = Json::object();
    for (const KeyChange& follows : each.change.with) with[follows.key] = follows.is;
    std::map<std::string, double> more = seconds_by_part(each.plan);
    for (const auto& [part, seconds] : seconds_by_part(improvement.current)) more[part] -= seconds;
    for (const auto& [part, seconds] : more) parts[part] = seconds;
    changes.push_back(
        {{"key", change.key}, {"was", change.was}, {"is", change.is}, {"with", with}, {"part_differences", parts}});
    changes.back().update(fields_of(each.plan, request));
  }
  Json json = {{"profile", request.profile.name},
               {"rates", rates_text(request.profile, request.machine)},
               {"tried", improvement.num_tried},
               {"fitting", improvement.num_fitting},
               {"current", fields_of(improvement.current, request)},
               {"changes", changes}};
  if (improvement.changes.empty()) json["reason"] = reason_of(improvement);
  if (improvement.changed_together) {
    Json together = Json::array();
    for (const SingleChange& each : improvement.together) {
      together.push_back({{"key", each.change.key}, {"was", each.change.was}, {"is", each.change.is}});
      for (const KeyChange& with : each.with) together.back()["with"][with.key] = with.is;
    }
    json["together"] = {{"changes", together}};
    json["together"].update(fields_of(*improvement.changed_together, request));
  }
  return json.dump() + "\n";
}

}  // namespace echelon
