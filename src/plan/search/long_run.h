// A whole training with a plan: its days and its price, or the tokens of some hours, with failures and the checkpoints
// that they demand. The interval between checkpoints is Daly's (predict/simulation/failures.h), in whole steps.
#pragma once

#include "plan/search/plan.h"
#include "predict/simulation/failures.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace echelon {

/// From the shortest step of a prediction's interval to the longest.
struct LongRunRange {
  double low_seconds = 0, high_seconds = 0, low_price = 0, high_price = 0, low_tokens = 0, high_tokens = 0;
};

/// With failures, what they cost on average.
struct LongRun {
  double num_steps = 0, tokens = 0;
  double seconds = 0;                         // infinite if failures leave no time to train
  std::optional<FailureModel> failures = {};  // of the whole job
  double interval_steps = 0, goodput = 1;     // with failures: steps between checkpoints; part of the time that counts
  double device_hours = 0, price = 0;         // price: in the unit of price_per_device_hour; 0: not known
  std::optional<bool> is_in_time = {};        // within the hours, if both tokens and hours are asked for
  std::optional<LongRunRange> range = {};     // if the step has an interval

  [[nodiscard]] double days() const { return seconds / 86400; }
};

/// Of the first whole step after which all tokens were seen, without a price.
[[nodiscard]] LongRun long_run(double tokens, double tokens_of_step, double step_seconds,
                               const std::optional<FailureModel>& failures);
/// Of the whole steps that end within the hours.
[[nodiscard]] LongRun run_of_hours(double hours, double tokens_of_step, double step_seconds,
                                   const std::optional<FailureModel>& failures);
/// Of request.long_training. Throws Error if a checkpoint's time is neither given nor predicted.
[[nodiscard]] LongRun long_run(const Plan& plan, const PlanRequest& request);

/// "43.5 (38.9 to 51.8)": days.
[[nodiscard]] std::string days_text(const LongRun& run);
/// Likewise, a price.
[[nodiscard]] std::string price_text(const LongRun& run);
/// Likewise, tokens.
[[nodiscard]] std::string tokens_text(const LongRun& run);
/// One or two sentences, each with the end of its line.
[[nodiscard]] std::string to_text(const LongRun& run, const PlanRequest& request);
[[nodiscard]] nlohmann::ordered_json to_json(const LongRun& run);

}  // namespace echelon
