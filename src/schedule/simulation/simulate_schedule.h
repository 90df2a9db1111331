// Simulates a schedule before it is lowered: only compute passes and the messages between stages, the model of the
// papers' figures and tables.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace echelon {

/// What one microbatch costs on a rank, whatever the number of its stages: a rank with v stages needs 1/v of it for
/// each.
struct PassTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;  // a fused backward takes both and sends its gradient at its end
  // From the end of a pass until a stage on another rank has its result; takes no rank's time.
  double p2p = 0;
  bool operator==(const PassTimes&) const = default;
};

/// Every pass starts as soon as its rank is free and its input has arrived. Events are in the order of
/// `schedule.ranks`, which take the place of programs. Throws Failure naming the first pass that can never start.
[[nodiscard]] Timeline simulate_schedule(const Schedule& schedule, const PassTimes& times);

}  // namespace echelon
