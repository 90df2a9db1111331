// Seconds and bytes that no layout can be below, without its blueprint (docs/plan.md derives them). Three grades, each at least as high as the one before:
//
//   of a shape      what a rank computes on average
//   of a pipeline   its fullest rank: the way of the first microbatch to it, all its passes, the way of the last gradient back; what it keeps at its fullest
//   of a layout     the schedule against the clock, and what comes before the next step: reduction, clipping, update, gathering
#pragma once

#include "predict/compact_schedule.h"

#include <map>
#include <memory>

namespace echelon {

/// A layout without its data axes.
struct PlanComputation {
  PlanShape shape = {};
  PlanPipeline pipeline = {};
  PlanRecompute recompute = {};
  bool operator==(const PlanComputation&) const = default;
};

class PlanBounds {
 public:
  PlanBounds(const PlanSpace& space, const PlanRequest& request);
  ~PlanBounds();

  [[nodiscard]] CostTable& costs() { return costs_; }
  [[nodiscard]] double shape_seconds(const PlanShape& shape);
  /// Whatever the data axes are.
  [[nodiscard]] double pipeline_seconds(const PlanComputation& computation);
  /// `plays`: the schedule is held against the clock, which takes most of the time.
  [[nodiscard]] double seconds(const PlanChoice& choice, bool plays);
  [[nodiscard]] std::int64_t bytes(const PlanChoice& choice);
  /// Whatever the data axes are.
  [[nodiscard]] std::int64_t pipeline_bytes(const PlanComputation& computation);
  /// The same without the schedule: with one microbatch in flight, or all where every order of the schedule's kind has them.
  [[nodiscard]] std::int64_t pipeline_bytes_at_least(const PlanComputation& computation);

 private:
  struct Stages;
  struct PassingBytes;
  struct Wait;
  struct Computed;
  [[nodiscard]] Stages stages_of(const PlanComputation& computation);
  [[nodiscard]] Computed& computed(const PlanComputation& computation);
  [[nodiscard]] const CompactSchedule& schedule_of(const PlanShape& shape, const PlanPipeline& pipeline);
  [[nodiscard]] double on_all_cores(const PlanShape& shape, double core_seconds) const;
  [[nodiscard]] static double core_seconds(const PlanComputation& computation, const Stages& stages);
  [[nodiscard]] static double state_core_seconds(const PlanChoice& choice, const Stages& stages, const StateTraces& state);
  [[nodiscard]] std::vector<double> unplayed_ends(const PlanComputation& computation, const Stages& stages) const;
  [[nodiscard]] std::vector<Wait> waits_of(const PlanChoice& choice, const Stages& stages, const StateCosts& state);
  [[nodiscard]] const std::vector<double>& last_passes(const PlanChoice& choice, const Stages& stages, const StateCosts& state);
  [[nodiscard]] double first_gathers(const PlanChoice& choice, const Stages& stages, const StateCosts& state);
  [[nodiscard]] double single_rank_end(const PlanChoice& choice, const Stages& stages, const StateCosts& state);
  [[nodiscard]] double lane_seconds(const PlanChoice& choice, const Stages& stages, const StateCosts& state) const;
  [[nodiscard]] double step_end(const PlanChoice& choice, const Stages& stages, const StateCosts& state, const std::vector<double>& last_passes);
  [[nodiscard]] std::int64_t persistent_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank);
  [[nodiscard]] const std::vector<PassingBytes>& passing_bytes(const PlanComputation& computation);
  [[nodiscard]] std::int64_t bytes_beside_passes(const PlanChoice& choice, const PassingBytes& passing);
  [[nodiscard]] std::int64_t gathered_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTable costs_;
  std::map<std::tuple<PipelineSchedule, std::int64_t, std::int64_t, std::int64_t>, CompactSchedule> schedules_;
  std::unique_ptr<Computed> last_;  // of the computation that was asked for last: a search asks for its data axes one after the other
};

}  // namespace echelon
