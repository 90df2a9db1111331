#include "base/text/counted.h"
#include "plan/search/tune.h"
#include "plan/text/fields.h"
#include "plan/text/text.h"

#include <fmt/format.h>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string layout_text(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  std::string text = fmt::format("tensor {}{} x pipeline {}", p.tensor_parallel_degree,
                                 p.sequence_parallel ? " (sequence)" : "", p.pipeline_parallel_degree);
  if (p.pipeline_parallel_degree > 1)
    text += fmt::format(" ({}{})", name_of(p.pipeline_parallel_schedule),
                        p.virtual_stages > 1 ? fmt::format(" v={}", p.virtual_stages) : "");
  text += fmt::format(" x replicate {} x shard {}", p.data_parallel_replicate_degree, p.data_parallel_shard_degree);
  if (p.data_parallel_shard_degree > 1) text += fmt::format(" ZeRO-{}", p.zero_level);
  if (config.model.has_experts()) text += ", experts over " + expert_text(config);
  if (p.order != AxisOrder()) text += fmt::format(", order {}", name_of(p.order));
  return text + fmt::format(", {} x {}, recompute {}", config.num_microbatches(),
                            counted(config.training.micro_batch_size, "sequence"),
                            fmt::join(names_of(config.training.recompute), "+"));
}

std::string to_text(const Tuning& tuning) {
  std::string text = "as predicted first, and run:\n";
  text += fmt::format("{:>10} {:>10} {:>10}  {}\n", "predicted", "measured", "refitted", "layout");
  for (const TunedPlan& each : tuning.tried)
    text += fmt::format("{:>9.4f}s {:>9.4f}s {:>9.4f}s  {}\n", each.plan.outcome.step_seconds, each.measured_seconds,
                        each.refitted_seconds, layout_text(each.plan.config));
  text += fmt::format(
      "learned: here operations take {:.2f} times as long as '{}' says and communication {:.2f} times; mean error "
      "{:.1f}% before, {:.1f}% after\n",
      tuning.scales.compute, tuning.machine.name, tuning.scales.communication, 100 * tuning.error_before,
      100 * tuning.error_after);
  text += "ranked again:\n";
  for (const Plan& plan : tuning.again.plans) {
    const double measured = tuning.measured_seconds(plan.config);
    const std::string taken = measured > 0 ? fmt::format("{:>9.4f}s", measured) : fmt::format("{:>10}", "not run");
    text += fmt::format("{:>9.4f}s {}  {}\n", plan.outcome.step_seconds, taken, layout_text(plan.config));
  }
  return text + fmt::format("fastest of those that were run: {:.4f} s a step, {}\n", tuning.fastest().measured_seconds,
                            layout_text(tuning.fastest().plan.config));
}

std::string to_json(const Tuning& tuning, const PlanRequest& request) {
  Json tried = Json::array(), plans = Json::array();
  for (const TunedPlan& each : tuning.tried) {
    tried.push_back(fields_of(each.plan, request));
    tried.back()["measured_seconds"] = each.measured_seconds;
    tried.back()["refitted_seconds"] = each.refitted_seconds;
  }
  for (const Plan& plan : tuning.again.plans) {
    plans.push_back(fields_of(plan, request));
    if (const double measured = tuning.measured_seconds(plan.config); measured > 0)
      plans.back()["measured_seconds"] = measured;
  }
  Json json = fields_of(tuning.again, request);
  json["scales"] = {{"compute", tuning.scales.compute}, {"communication", tuning.scales.communication}};
  json["error_before"] = tuning.error_before;
  json["error_after"] = tuning.error_after;
  json["tried"] = tried;
  json["plans"] = plans;
  return json.dump() + "\n";
}

}  // namespace echelon
