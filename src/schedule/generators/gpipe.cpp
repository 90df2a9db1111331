// GPipe (Huang et al. 2019, arXiv:1811.06965, fig. 2c): all forwards, then all backwards. Stores the activations of all
// microbatches; backwards are in ascending order, as Narayanan et al. 2021 (arXiv:2104.04473) draw them in fig. 3.
//
//     rank 0   F1F2F3    B1B2B3
//     rank 1     F1F2F3B1B2B3
#include "schedule/schedule.h"

namespace echelon {

Schedule gpipe_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks, num_microbatches);
  for (int stage = 0; stage < num_ranks; ++stage) {
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) schedule.add(kind, stage, microbatch);
    }
  }
  return schedule;
}

}  // namespace echelon
