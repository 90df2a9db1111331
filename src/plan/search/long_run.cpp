#include "plan/search/long_run.h"

#include "base/error.h"
#include "plan/search/cost.h"
#include "predict/saving/predicted_save.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace echelon {
namespace {

constexpr double seconds_of_an_hour = 3600;
constexpr double least_goodput = 1e-9;  // below it, a training has no end that anyone sees

/// A job fails when one of its devices does; threads fail with their host.
FailureModel failures_of(const Plan& plan, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  const double units = request.machine.host ? 1 : static_cast<double>(plan.config.mesh_shape().num_ranks());
  FailureModel failures = {.mtbf_seconds = *asked.mtbf_hours * seconds_of_an_hour / units};
  std::optional<PredictedSave> save;
  if (!asked.checkpoint_seconds || !asked.restart_seconds)
    save = predicted_save(Blueprint(plan.config), request.machine);
  std::optional<double> checkpoint_seconds = asked.checkpoint_seconds;
  if (!checkpoint_seconds) checkpoint_seconds = save->snapshot ? save->snapshot->longer_seconds : save->save_seconds;
  require(checkpoint_seconds && *checkpoint_seconds > 0,
          "--mtbf={} needs --checkpoint-seconds, since the disk of the machine '{}' was not measured (example: "
          "--checkpoint-seconds=30)",
          *asked.mtbf_hours, request.machine.name);
  failures.checkpoint_seconds = *checkpoint_seconds;
  failures.restart_seconds = asked.restart_seconds ? *asked.restart_seconds : save->load_seconds.value_or(0);
  return failures;
}

}  // namespace

LongRun long_run(double tokens, double tokens_of_step, double step_seconds,
                 const std::optional<FailureModel>& failures) {
  LongRun run = {.num_steps = std::ceil(tokens / tokens_of_step), .failures = failures};
  run.seconds = run.num_steps * step_seconds;
  if (!failures) return run;
  run.interval_steps =
      std::clamp(std::round(daly_interval_seconds(*failures) / step_seconds), 1.0, std::max(1.0, run.num_steps));
  run.goodput = goodput(*failures, run.interval_steps * step_seconds);
  run.seconds = run.goodput >= least_goodput ? run.seconds / run.goodput : std::numeric_limits<double>::infinity();
  return run;
}

LongRun long_run(const Plan& plan, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  const auto tokens_of_step =
      static_cast<double>(plan.config.training.global_batch_size * plan.config.training.seq_len);
  const std::optional<FailureModel> failures =
      asked.mtbf_hours ? std::optional(failures_of(plan, request)) : std::nullopt;
  const double step_seconds = plan.outcome.step_seconds;
  LongRun run = long_run(asked.tokens, tokens_of_step, step_seconds, failures);
  run.device_hours = run.seconds / seconds_of_an_hour * static_cast<double>(plan.config.mesh_shape().num_ranks());
  run.price = price_per_token(plan, request) * tokens_of_step * run.seconds / step_seconds;
  return run;
}

std::string to_text(const LongRun& run, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  if (std::isinf(run.seconds)) return fmt::format("--mtbf={} leaves no time to train\n", *asked.mtbf_hours);
  const std::string price = run.price > 0 ? fmt::format(", for a price of {:.4g}", run.price) : "";
  std::string text = fmt::format("{:.4g} tokens are {:.0f} steps: {:.4g} days and {:.4g} device hours{}{}\n",
                                 asked.tokens, run.num_steps, run.days(), run.device_hours, price,
                                 run.failures ? "" : ", without failures and checkpoints (--mtbf)");
  if (run.failures)
    text += fmt::format(
        "of which {:.1f} % is training: the job fails every {:.3g} hours on average, restarts in {:.3g} s, and saves "
        "every {:.0f} steps for {:.3g} s (Young, Daly)\n",
        100 * run.goodput, run.failures->mtbf_seconds / seconds_of_an_hour, run.failures->restart_seconds,
        run.interval_steps, run.failures->checkpoint_seconds);
  return text;
}

nlohmann::ordered_json to_json(const LongRun& run) {
  nlohmann::ordered_json json = {{"steps", static_cast<std::int64_t>(run.num_steps)},
                                 {"days", run.days()},
                                 {"device_hours", run.device_hours},
                                 {"price", run.price},
                                 {"goodput", run.goodput}};
  if (run.failures) {
    json["job_mtbf_hours"] = run.failures->mtbf_seconds / seconds_of_an_hour;
    json["checkpoint_seconds"] = run.failures->checkpoint_seconds;
    json["restart_seconds"] = run.failures->restart_seconds;
    json["checkpoint_interval_steps"] = static_cast<std::int64_t>(run.interval_steps);
  }
  return json;
}

}  // namespace echelon
