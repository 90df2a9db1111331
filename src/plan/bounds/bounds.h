// Seconds and bytes that no layout can be below, without its blueprint (docs/internals/planner.md derives them).
// Grades, each at least as high as the one before:
//
//   of a shape      what a rank computes on average
//   of a pipeline   its slowest rank: the way of the first microbatch to it, all its passes, the way of the last
//                   gradient back; the highest memory use of a rank; then a simulation of its schedule
//   of a layout     also what its data axes add to passes, and what comes before the next step: reduction, clipping,
//                   update, gathering
#pragma once

#include "plan/bounds/bytes.h"
#include "plan/bounds/data_seconds.h"

#include <limits>
#include <list>
#include <map>
#include <optional>

namespace echelon {

/// Bounds are summed in another order than the simulator's seconds, and than each other.
inline constexpr double rounding_of_bounds = 1 - 1e-9;

/// What requests have in common that differ in the number of devices or in what they fix.
struct KnownParts {
  KnownPasses passes;
  KnownSchedules schedules;
};

/// Pipelines of a shape with the same kind have the same bounds of seconds and bytes, but for a clock's.
struct PipelineKind {
  const StageRanks* ranks = nullptr;
  BackwardKinds backward{};
  bool is_naive = false, holds_all = false;
  auto operator<=>(const PipelineKind&) const = default;
};

class PlanBounds {
 public:
  static constexpr std::int64_t any_bytes = std::numeric_limits<std::int64_t>::max();

  /// It refers to all of them.
  PlanBounds(const PlanSpace& space, const PlanRequest& request, KnownParts* known = nullptr);
  PlanBounds(const PlanBounds&) = delete;
  PlanBounds& operator=(const PlanBounds&) = delete;

  [[nodiscard]] CostTable& costs() { return costs_; }
  [[nodiscard]] PlanBytes& bytes() { return bytes_; }
  /// Of orders with the placement. The same object where another placement has the same costs, most often.
  [[nodiscard]] const LayerCosts& layers(const PlanShape& shape, const BlockOperations& recomputed,
                                         TensorPlacement placement);
  /// Whatever else is chosen, orders too.
  [[nodiscard]] double shape_seconds(const PlanShape& shape);
  /// The same, whatever ranks of context parallelism exchange, for less work. None where that is not known.
  [[nodiscard]] std::optional<double> unexchanged_seconds(const PlanShape& shape);
  /// Whatever the pipeline is, of those whose blocks recompute some of these operations and that keep no more than
  /// `most_bytes` on any rank; among orders with the placement.
  [[nodiscard]] double recomputing_seconds(const PlanShape& shape, const BlockOperations& operations,
                                           TensorPlacement placement, std::int64_t most_bytes);
  [[nodiscard]] PipelineKind kind_of(const PlanShape& shape, const PlanPipeline& pipeline);
  /// Whatever the data axes and the order are, among those with the placement.
  [[nodiscard]] double pipeline_seconds(const PlanComputation& computation, TensorPlacement placement);
  /// The same; a clock goes over the schedule.
  [[nodiscard]] double clocked_pipeline_seconds(const PlanComputation& computation, TensorPlacement placement);
  /// Whatever the order is, among those with the placement: without a clock.
  [[nodiscard]] double unclocked_seconds(const PlanChoice& choice, TensorPlacement placement);
  /// The same. A clock goes over the schedule; `clocks_lanes`: again, with the data axes' part of it.
  [[nodiscard]] double seconds_of_any_order(const PlanChoice& choice, TensorPlacement placement, bool clocks_lanes);

  /// What layouts of a computation have in common, whose groups have a placement. Valid as long as its stages are.
  struct Placed {
    const LayerCosts& layers;
    const PlanStages& stages;
    const std::vector<StagePasses>& passes;
    TensorPlacement placement = any_placement;
  };
  [[nodiscard]] Placed placed(const PlanComputation& computation, TensorPlacement placement);
  /// As above, of a layout of it with the state of its data axes.
  [[nodiscard]] double unclocked_seconds(const PlanChoice& choice, const Placed& placed, const StateCosts& state);
  [[nodiscard]] double seconds_of_any_order(const PlanChoice& choice, const Placed& placed, const StateCosts& state,
                                            bool clocks_lanes);
  [[nodiscard]] double seconds(const PlanChoice& choice);

 private:
  /// What was found out about the stages of a number.
  struct Ends {
    std::int64_t number = 0;
    std::vector<double> unplayed = {};    // by rank: the end of its last pass
    std::map<double, PassEnds> played{};  // from a clock, by the seconds of a transfer
  };
  /// What the clock of a bound knows: nothing without one, and the lane of data axes or not.
  enum class Clocking : std::uint8_t { none, of_passes, of_lanes };
  [[nodiscard]] Ends& ends_of(const PlanComputation& computation, const PlanStages& stages);
  [[nodiscard]] double shape_seconds(const PlanShape& shape, const LayerCosts& costs) const;
  [[nodiscard]] double on_all_cores(const PlanShape& shape, double core_seconds) const;
  [[nodiscard]] double step_seconds(const PlanCosts& costs, double transfer_seconds, Clocking clocking);
  [[nodiscard]] PassEnds ends_of(const PlanCosts& costs, double transfer_seconds, Clocking clocking);
  [[nodiscard]] PassEnds clocked(const PlanComputation& computation, const PlanStages& stages, double transfer_seconds,
                                 const PassLane& lane, const StateCosts& state);
  [[nodiscard]] double least_transfer_seconds(const PlanShape& shape, TensorPlacement placement);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTable costs_;
  PlanStageTable stages_;
  PlanBytes bytes_;
  std::list<Ends> ends_;  // a few, those that were used last come first
  using LeastTransfers = std::map<std::pair<PlanShape, TensorPlacement>, double>;
  LeastTransfers least_transfers_;
  LeastTransfers::iterator least_transfer_ = least_transfers_.end();  // that was asked for last
};

}  // namespace echelon
