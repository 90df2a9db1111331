#include "plan/search/long_run.h"

#include "base/error.h"
#include "base/text/written_number.h"
#include "plan/search/cost.h"
#include "predict/machine/device_map.h"
#include "predict/published/promise.h"
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

/// A job fails when one of its units does.
double units_of(const Plan& plan, const PlanRequest& request) {
  const MeshShape mesh = plan.config.mesh_shape();
  const FailingUnit of = request.long_training->mtbf->of;
  if (request.machine.host || of == FailingUnit::job) return 1;
  if (of == FailingUnit::device) return mesh.num_ranks();
  return DeviceMap(mesh, request.machine).node_of(mesh.num_ranks() - 1) + 1;
}

FailureModel failures_of(const Plan& plan, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  FailureModel failures = {.mtbf_seconds = asked.mtbf->hours * seconds_of_an_hour / units_of(plan, request)};
  std::optional<PredictedSave> save;
  if (!asked.checkpoint_seconds || !asked.restart_seconds)
    save = predicted_save(Blueprint(plan.config), request.machine);
  std::optional<double> checkpoint_seconds = asked.checkpoint_seconds;
  if (!checkpoint_seconds) checkpoint_seconds = save->snapshot ? save->snapshot->longer_seconds : save->save_seconds;
  require(checkpoint_seconds && *checkpoint_seconds > 0, unknown_checkpoint_seconds, asked.mtbf->hours,
          name_of(asked.mtbf->of), request.machine.name);
  failures.checkpoint_seconds = *checkpoint_seconds;
  const double found = request.machine.host ? 0 : default_restart_seconds;
  failures.restart_seconds = asked.restart_seconds ? *asked.restart_seconds : found + save->load_seconds.value_or(0);
  return failures;
}

/// With the interval between checkpoints of a run of so many steps, and its goodput.
LongRun run_of_steps(double num_steps, double step_seconds, const std::optional<FailureModel>& failures) {
  LongRun run = {.num_steps = num_steps, .seconds = num_steps * step_seconds, .failures = failures};
  if (!failures) return run;
  run.interval_steps =
      std::clamp(std::round(daly_interval_seconds(*failures) / step_seconds), 1.0, std::max(1.0, num_steps));
  run.goodput = goodput(*failures, run.interval_steps * step_seconds);
  run.seconds = run.goodput >= least_goodput ? run.seconds / run.goodput : std::numeric_limits<double>::infinity();
  return run;
}

/// As many as an interval is worth.
std::string three_digits(double number) { return number > 0 ? written(std::stod(fmt::format("{:.2e}", number))) : "0"; }

/// " (38.9 to 51.8)".
std::string range_text(double low, double high) {
  if (std::isinf(high)) return fmt::format(" ({} or more)", three_digits(low));
  return fmt::format(" ({} to {})", three_digits(low), three_digits(high));
}

std::string failures_text(const LongRun& run) {
  return fmt::format(
      "of which {:.1f} % is training: the job fails every {} hours on average, restarts in {} s, and saves every "
      "{:.0f} "
      "steps for {} s (Young, Daly)\n",
      100 * run.goodput, written(run.failures->mtbf_seconds / seconds_of_an_hour),
      written(run.failures->restart_seconds), run.interval_steps, written(run.failures->checkpoint_seconds));
}

}  // namespace

LongRun long_run(double tokens, double tokens_of_step, double step_seconds,
                 const std::optional<FailureModel>& failures) {
  LongRun run = run_of_steps(std::ceil(tokens / tokens_of_step), step_seconds, failures);
  run.tokens = run.num_steps * tokens_of_step;
  return run;
}

LongRun run_of_hours(double hours, double tokens_of_step, double step_seconds,
                     const std::optional<FailureModel>& failures) {
  const double most_steps = hours * seconds_of_an_hour / step_seconds;
  LongRun run = run_of_steps(std::floor(most_steps), step_seconds, failures);
  run.num_steps = std::isinf(run.seconds) ? 0 : std::floor(most_steps * run.goodput);
  run.tokens = run.num_steps * tokens_of_step;
  if (!std::isinf(run.seconds)) run.seconds = run.num_steps * step_seconds / run.goodput;
  return run;
}

LongRun long_run(const Plan& plan, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  const auto tokens_of_step =
      static_cast<double>(plan.config.training.global_batch_size * plan.config.training.seq_len);
  const std::optional<FailureModel> failures = asked.mtbf ? std::optional(failures_of(plan, request)) : std::nullopt;
  const double step_seconds = plan.outcome.step_seconds;
  const auto run_at = [&](double seconds) {
    LongRun run = asked.tokens ? long_run(*asked.tokens, tokens_of_step, seconds, failures)
                               : run_of_hours(*asked.hours, tokens_of_step, seconds, failures);
    run.price = price_per_token(plan, request) * tokens_of_step * run.seconds / step_seconds;
    return run;
  };
  LongRun run = run_at(step_seconds);
  if (asked.tokens && asked.hours) run.is_in_time = run.seconds <= *asked.hours * seconds_of_an_hour;
  run.device_hours = run.seconds / seconds_of_an_hour * static_cast<double>(plan.config.mesh_shape().num_ranks());
  const SecondsRange range = seconds_range(plan.outcome, request.machine, request.profile);
  if (range.low >= range.high) return run;
  const LongRun low = run_at(range.low), high = run_at(range.high);
  run.range = {low.seconds, high.seconds, low.price, high.price, high.tokens, low.tokens};
  return run;
}

std::string days_text(const LongRun& run) {
  constexpr double day = 86400;
  return written(run.days()) +
         (run.range ? range_text(run.range->low_seconds / day, run.range->high_seconds / day) : "");
}

std::string price_text(const LongRun& run) {
  return written(run.price) + (run.range ? range_text(run.range->low_price, run.range->high_price) : "");
}

std::string tokens_text(const LongRun& run) {
  return written(run.tokens) + (run.range ? range_text(run.range->low_tokens, run.range->high_tokens) : "");
}

std::string to_text(const LongRun& run, const PlanRequest& request) {
  const TrainingRequest& asked = *request.long_training;
  if (std::isinf(run.seconds))
    return fmt::format("--mtbf={:.6g}/{} leaves no time to train\n", asked.mtbf->hours, name_of(asked.mtbf->of));
  if (run.num_steps < 1) return fmt::format("--hours={} is less than a step\n", *asked.hours);
  const std::string price =
      run.price > 0 ? fmt::format(", for a price of {}", asked.tokens ? price_text(run) : written(run.price)) : "";
  const std::string without = run.failures ? "" : ", without failures and checkpoints (--mtbf)";
  std::string text =
      asked.tokens ? fmt::format("{} tokens are {} steps: {} days and {} device hours{}{}\n", written(*asked.tokens),
                                 grouped(run.num_steps), days_text(run), written(run.device_hours), price, without)
                   : fmt::format("{} hours are {} steps: {} tokens in {} device hours{}{}\n", written(*asked.hours),
                                 grouped(run.num_steps), tokens_text(run), written(run.device_hours), price, without);
  if (run.failures) text += failures_text(run);
  if (run.is_in_time)
    text += fmt::format("that is {} hours{}, {} --hours={}\n", written(run.seconds / seconds_of_an_hour),
                        run.range ? range_text(run.range->low_seconds / seconds_of_an_hour,
                                               run.range->high_seconds / seconds_of_an_hour)
                                  : "",
                        *run.is_in_time ? "within" : "more than", *asked.hours);
  return text;
}

nlohmann::ordered_json to_json(const LongRun& run) {
  nlohmann::ordered_json json = {{"steps", static_cast<std::int64_t>(run.num_steps)},
                                 {"tokens", run.tokens},
                                 {"days", run.days()},
                                 {"device_hours", run.device_hours},
                                 {"price", price_json(run.price)},
                                 {"goodput", run.goodput}};
  if (run.is_in_time) json["within_hours"] = *run.is_in_time;
  if (run.range) {
    constexpr double day = 86400;
    json["interval_days"] = {run.range->low_seconds / day, run.range->high_seconds / day};
    if (run.price > 0) json["interval_price"] = {run.range->low_price, run.range->high_price};
    json["interval_tokens"] = {run.range->low_tokens, run.range->high_tokens};
  }
  if (run.failures) {
    json["job_mtbf_hours"] = run.failures->mtbf_seconds / seconds_of_an_hour;
    json["checkpoint_seconds"] = run.failures->checkpoint_seconds;
    json["restart_seconds"] = run.failures->restart_seconds;
    json["checkpoint_interval_steps"] = static_cast<std::int64_t>(run.interval_steps);
  }
  return json;
}

}  // namespace echelon
