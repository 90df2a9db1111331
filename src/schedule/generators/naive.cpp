// The baseline: a microbatch passes all stages forward and backward before the next one starts.
//
//     rank 0   F1      B1F2      B2
//     rank 1     F1  B1    F2  B2
//     rank 2       F1B1      F2B2
#include "schedule/schedule.h"

namespace echelon {

Schedule naive_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks, num_microbatches);
  for (int stage = 0; stage < num_ranks; ++stage) {
    for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
      schedule.add(ActionKind::forward, stage, microbatch);
      schedule.add(ActionKind::backward, stage, microbatch);
    }
  }
  return schedule;
}

}  // namespace echelon
