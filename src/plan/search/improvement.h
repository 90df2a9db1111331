// "What should I change?": the single changes of a config after which its step is shortest.
#pragma once

#include "plan/search/plan.h"
#include "plan/space/single_changes.h"

#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct ChangedPlan {
  SingleChange change;
  Plan plan;
};

struct Improvement {
  Plan current;
  std::vector<ChangedPlan> changes;  // the best value of each key, shortest step first, at most three
  int num_tried = 0, num_fitting = 0;
  // Where no single change makes it fit: up to three, one after the other, each of which needs least memory.
  std::vector<SingleChange> together = {};
  std::optional<Plan> changed_together = {};
};

/// Times every single change on the request's machine; those that fit and are faster than the config are candidates,
/// and, if the config does not fit, all that fit.
[[nodiscard]] Improvement improve(const RunConfig& config, const PlanRequest& request);

[[nodiscard]] std::string to_text(const Improvement& improvement, const PlanRequest& request);
/// One object: the config and its changes in the words of a plan's, and which seconds of its parts differ.
[[nodiscard]] std::string to_json(const Improvement& improvement, const PlanRequest& request);

}  // namespace echelon
