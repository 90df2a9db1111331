// 1F1B, PipeDream-flush (Narayanan et al. 2021, arXiv:2104.04473, fig. 4 top): one forward per later stage, then one
// forward and one backward alternately, then the remaining backwards. Takes as long as GPipe, and stage s stores the
// activations of only min(m, p - s) microbatches.
//
//     rank 0   F1F2      B1F3    B2    B3
//     rank 1     F1    B1F2    B2F3  B3          (B takes two F; fig. 4 aligns them so)
#include "schedule/schedule.h"

#include <algorithm>

namespace echelon {

Schedule one_f_one_b_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks, num_microbatches);
  for (int stage = 0; stage < num_ranks; ++stage) {
    const int num_warmup = std::min(num_ranks - 1 - stage, num_microbatches);
    int next_forward = 0, next_backward = 0;
    const auto run = [&](ActionKind kind, int& next) { schedule.add(kind, stage, next++); };

    while (next_forward < num_warmup) run(ActionKind::forward, next_forward);
    while (next_forward < num_microbatches) {
      run(ActionKind::forward, next_forward);
      run(ActionKind::backward, next_backward);
    }
    while (next_backward < num_microbatches) run(ActionKind::backward, next_backward);
  }
  return schedule;
}

}  // namespace echelon
