// Looped breadth-first (Lamy-Poirier 2022, arXiv:2211.05953): ranks hold v stages as in interleaved 1F1B, but run all
// microbatches through one of them before they start the next. So the parameters of a stage are gathered once for all
// of them. The bubble is that of interleaved 1F1B, (p-1)/(m v + p - 1); all m v activations are in flight.
//
//     rank 0   F1F2F3f1f2f3    b1b2b3B1B2B3      (p = 2, v = 2; capitals: the rank's first stage)
//     rank 1     F1F2F3f1f2f3b1b2b3B1B2B3
#include "schedule/schedule.h"

namespace echelon {

Schedule looped_bfs_schedule(int num_ranks, int num_microbatches, int num_virtual) {
  const int num_stages = num_ranks * num_virtual;
  Schedule schedule = empty_loop_schedule(num_ranks, num_stages, num_microbatches);
  for (int stage = 0; stage < num_stages; ++stage) {
    for (int microbatch = 0; microbatch < num_microbatches; ++microbatch)
      schedule.add(ActionKind::forward, stage, microbatch);
  }
  for (int stage = num_stages - 1; stage >= 0; --stage) {
    for (int microbatch = 0; microbatch < num_microbatches; ++microbatch)
      schedule.add(ActionKind::backward, stage, microbatch);
  }
  return schedule;
}

}  // namespace echelon
