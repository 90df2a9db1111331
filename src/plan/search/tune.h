// The planner's best few, run for some steps: what they took says how the machine differs from its description, and the
// layouts are ranked again (docs/guides/plan.md).
#pragma once

#include "plan/search/plan.h"
#include "predict/machine/cost_scales.h"

#include <functional>
#include <string>
#include <vector>

namespace echelon {

/// Runs some steps of a config and gives the seconds of a usual one.
using StepTimer = std::function<double(const RunConfig&)>;

struct TunedPlan {
  Plan plan;  // as it was predicted first
  double measured_seconds = 0;
  double refitted_seconds = 0;  // predicted on the tuned machine
};

struct Tuning {
  std::vector<TunedPlan> tried;              // as they were ranked first
  CostScales scales;                         // that bring predicted seconds closest to the measured ones
  MachineSpec machine;                       // with these
  PlanResult again;                          // the ranking on that machine
  double error_before = 0, error_after = 0;  // mean relative ones of the predicted seconds

  /// Of those that were tried the one that took least.
  [[nodiscard]] const TunedPlan& fastest() const;
  /// How long a layout took; 0 if it was not tried.
  [[nodiscard]] double measured_seconds(const RunConfig& config) const;
};

/// What the planner chooses of a config, in words: those of two configs are equal if both run in the same way.
[[nodiscard]] std::string layout_text(const RunConfig& config);

/// Throws Error if no layout fits.
[[nodiscard]] Tuning tune(const PlanRequest& request, const StepTimer& seconds_of_step);

[[nodiscard]] std::string to_text(const Tuning& tuning);
/// One object in the words of a plan's (plan/text/fields.h): the search on the tuned machine, its plans, and scales,
/// error_before, error_after and tried.
[[nodiscard]] std::string to_json(const Tuning& tuning, const PlanRequest& request);

}  // namespace echelon
