// The baseline: a microbatch passes all stages forward and backward before the next one begins.
//
//   rank 0   F1      B1F2      B2
//   rank 1     F1  B1    F2  B2
//   rank 2       F1B1      F2B2
#include "schedule/schedule.h"

namespace echelon {

Schedule naive_schedule(int num_stages, int num_microbatches) {
  Schedule schedule{std::vector<ComputeOrder>(num_stages), num_stages, num_microbatches};
  for (int stage = 0; stage < num_stages; ++stage) {
    for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
      schedule.ranks[stage].push_back({.kind = ActionKind::forward, .stage = stage, .microbatch = microbatch});
      schedule.ranks[stage].push_back({.kind = ActionKind::backward, .stage = stage, .microbatch = microbatch});
    }
  }
  return schedule;
}

}  // namespace echelon
