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
};

class PlanBounds {
 public:
  PlanBounds(const PlanSpace& space, const PlanRequest& request);
  ~PlanBounds();

  [[nodiscard]] double shape_seconds(const PlanShape& shape);
  /// Whatever the data axes are.
  [[nodiscard]] double pipeline_seconds(const PlanComputation& computation);
  /// `plays`: the schedule is held against the clock, which takes most of the time.
  [[nodiscard]] double seconds(const PlanChoice& choice, bool plays);
  [[nodiscard]] std::int64_t bytes(const PlanChoice& choice);
  /// Whatever the data axes are.
  [[nodiscard]] std::int64_t pipeline_bytes(const PlanComputation& computation);

 private:
  struct Stages;
  [[nodiscard]] Stages stages_of(const PlanComputation& computation);
  [[nodiscard]] const CompactSchedule& schedule_of(const PlanShape& shape, const PlanPipeline& pipeline);
  [[nodiscard]] double end_of_step(const PlanChoice& choice, const StateCosts& state, double last_pass) const;
  [[nodiscard]] std::int64_t persistent_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank);
  [[nodiscard]] std::int64_t passing_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank);
  [[nodiscard]] std::int64_t gathered_bytes(const PlanChoice& choice, const Stages& stages, std::size_t rank);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTable costs_;
  std::map<std::tuple<PipelineSchedule, std::int64_t, std::int64_t, std::int64_t>, CompactSchedule> schedules_;
};

}  // namespace echelon
