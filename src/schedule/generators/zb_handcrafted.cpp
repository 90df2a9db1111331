// The two handcrafted schedules of Qi et al. 2023 (arXiv:2401.10241, section 2.3): rank r starts with `slope` (p - 1 -
// r) forwards, then alternates one forward and one input gradient. It defers weight gradients by `slope` r
// microbatches, so that every rank stores the same number of them.
//
// ZB-H1, slope 1 (fig. 3 top): p microbatches at most, a bubble of (p-1)(F+B-W).          ZB-H2, slope 2 (fig. 3
// bottom): 2p - 1 at most, (p-1)(F+B-2W), no bubble if F = B = W.
//     rank 0   F1F2F3      B1W1F4B2W2F5..                                    rank 0   F1F2F3F4F5B1W1F6B2W2F7..
//     rank 1     F1F2  B1F3B2W1F4B3W2..                                      rank 1     F1F2F3B1F4B2F5B3W1..
//     rank 2       F1B1F2B2F3B3W1..                                          rank 2       F1B1F2B2F3B3F4..
#include "schedule/generators/defer_weight_gradients.h"

#include <algorithm>

namespace echelon {
namespace {

Schedule sloped(int slope, int num_ranks, int num_microbatches) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks, num_microbatches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int num_warmup = std::min(slope * (num_ranks - 1 - rank), num_microbatches);
    for (int microbatch = 0; microbatch < num_warmup; ++microbatch) schedule.add(ActionKind::forward, rank, microbatch);
    for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
      if (num_warmup + microbatch < num_microbatches) schedule.add(ActionKind::forward, rank, num_warmup + microbatch);
      schedule.add(ActionKind::backward, rank, microbatch);
    }
    schedule.ranks[rank] = defer_weight_gradients(schedule.ranks[rank], slope * rank);
  }
  return schedule;
}

}  // namespace

Schedule zb_h1_schedule(int num_ranks, int num_microbatches) { return sloped(1, num_ranks, num_microbatches); }
Schedule zb_h2_schedule(int num_ranks, int num_microbatches) { return sloped(2, num_ranks, num_microbatches); }

}  // namespace echelon
