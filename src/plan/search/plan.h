// The layouts of a model on a machine, best first. Every number is that of the layout's blueprint, timed by `simulate`;
// bounds only decide which layouts need not be timed (docs/internals/planner.md).
#pragma once

#include "plan/space/space.h"
#include "predict/simulation/simulate.h"

#include <optional>
#include <vector>

namespace echelon {

struct Plan {
  PlanChoice choice;
  RunConfig config;
  Simulation outcome;  // without its timeline
};

/// The listed plans over draws of uncertain rates.
struct PlanDraws {
  std::vector<int> wins;                // of each plan
  std::vector<double> longest_seconds;  // of each plan, in its worst draw
  std::size_t safest = 0;               // the plan whose longest step is shortest
};

/// The step of a plan with its documents or windows, and this parallelism.context_parallel_load_balancer.
struct BalancedStep {
  LoadBalancer balancer = LoadBalancer::headtail;
  double seconds = 0;
  bool fits = true;
};

struct PlanResult {
  std::int64_t num_configurations = 0;  // legal layouts
  std::int64_t num_evaluated = 0;       // blueprints that were made and timed
  std::int64_t num_played = 0;          // layouts whose schedule was simulated
  std::int64_t num_stepped = 0;         // layouts whose programs were simulated
  std::int64_t work = 0;                // of the search: the same on every machine
  double seconds = 0;                   // that the search took
  double within = 0;                    // no layout is better than the first plan by more than this part of it
  int num_proven = 0;       // of the plans, the first ones: best of all layouts, or within the part asked for
  bool is_complete = true;  // false: the limit was reached, and the others are good ones found by then
  std::vector<Plan> plans;  // those that fit, best first
  // The first plan with its axes in the default order, where another one is better.
  std::optional<Plan> in_default_order;
  std::optional<Plan> without_context = {};  // the best one with cp = 1 that was found, where the first plan has more
  std::vector<BalancedStep> balanced = {};   // the first plan, where balancers differ
  std::vector<Plan> in_other_formats = {};   // the first plan, where the planner chose the dtype
  std::optional<PlanDraws> draws = {};       // where rates are borrowed
  std::optional<Plan> nearest;               // where none fits: the one that needs least memory, of those found
  bool is_nearest_proven = false;            // of all
  std::vector<std::string> suggestions;      // and the smallest changes of the request with which one does
};

/// Rounded to a part in four billion: seconds that were summed in another order are equal, and memory decides.
[[nodiscard]] double comparable(double seconds);
/// Whether `a` is better for the objective. A plan that fits is better than one that does not.
[[nodiscard]] bool is_better(PlanObjective objective, const Plan& a, const Plan& b);

/// The step of a config, with the request's documents.
[[nodiscard]] Simulation simulated(const RunConfig& config, const PlanRequest& request);
/// Blueprint and simulation of one layout.
[[nodiscard]] Plan evaluate(const PlanRequest& request, const PlanChoice& choice);

}  // namespace echelon
