// Seconds and bytes that no layout can be below, without its blueprint (docs/internals/planner.md derives them). Three
// grades, each at least as high as the one before:
//
//   of a shape      what a rank computes on average
//   of a pipeline   its slowest rank: the way of the first microbatch to it, all its passes, the way of the last
//                   gradient back; the highest memory use of a rank
//   of a layout     a simulation of the schedule, and what comes before the next step: reduction, clipping, update,
//                   gathering
#pragma once

#include "plan/bounds/bytes.h"
#include "plan/bounds/data_seconds.h"

#include <map>
#include <optional>

namespace echelon {

class PlanBounds {
 public:
  /// It refers to both.
  PlanBounds(const PlanSpace& space, const PlanRequest& request);
  PlanBounds(const PlanBounds&) = delete;
  PlanBounds& operator=(const PlanBounds&) = delete;

  [[nodiscard]] CostTable& costs() { return costs_; }
  [[nodiscard]] PlanBytes& bytes() { return bytes_; }
  /// Whatever else is chosen, orders too.
  [[nodiscard]] double shape_seconds(const PlanShape& shape);
  /// Whatever the data axes and the order are.
  [[nodiscard]] double pipeline_seconds(const PlanComputation& computation);
  /// Whatever the order is.
  [[nodiscard]] double seconds_of_any_order(const PlanChoice& choice);
  /// `plays`: the schedule is simulated, which takes most of the time.
  [[nodiscard]] double seconds(const PlanChoice& choice, bool plays);

 private:
  /// What was found out about the stages of a number.
  struct Ends {
    std::int64_t number = 0;
    std::vector<double> unplayed = {};               // by rank: the end of its last pass
    std::map<double, std::vector<double>> played{};  // from a simulation, by the seconds of a transfer
  };
  [[nodiscard]] Ends& ends_of(const PlanComputation& computation, const PlanStages& stages);
  [[nodiscard]] double on_all_cores(const PlanShape& shape, double core_seconds) const;
  [[nodiscard]] double step_seconds(const PlanCosts& costs, std::optional<double> transfer_seconds);
  [[nodiscard]] std::vector<double> last_passes(const PlanCosts& costs, std::optional<double> transfer_seconds);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTable costs_;
  PlanStageTable stages_;
  PlanBytes bytes_;
  Ends ends_;
};

}  // namespace echelon
