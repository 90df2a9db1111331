// Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2, fig. 4 bottom): each rank holds v stages, so
// that filling the pipeline takes v times less. Microbatches go in groups of p: a group passes all first stages of the
// ranks, then all second ones, and so on. The bubble is (p-1)/(m v + p - 1) of the time where p divides m, for v times
// as many transfers. Otherwise m is divided as evenly as possible into groups of at least p.
//
//     rank 0   F1F2f1f2  F3F4b1f3b2f4B1  B2  b3..      (p = 2, v = 2; capitals: the rank's first stage)
//     rank 1     F1F2f1b1f2b2F3B1F4B2f3b3..
#include "schedule/generators/defer_weight_gradients.h"

#include <algorithm>

namespace echelon {
namespace {

struct Pass {
  int turn, microbatch;  // turn: index among the rank's stages
};

std::vector<Pass> grouped_passes(int num_groups, int num_microbatches, int num_virtual) {
  std::vector<Pass> passes;
  for (int group = 0; group < num_groups; ++group) {
    const int first = num_microbatches * group / num_groups, behind = num_microbatches * (group + 1) / num_groups;
    for (int turn = 0; turn < num_virtual; ++turn) {
      for (int microbatch = first; microbatch < behind; ++microbatch) passes.push_back({turn, microbatch});
    }
  }
  return passes;
}

// `slope`: how many more forwards a rank runs ahead than the next rank, which is the round trip of a message in passes.
Schedule interleaved(int slope, int num_ranks, int num_microbatches, int num_virtual) {
  Schedule schedule = empty_loop_schedule(num_ranks, num_ranks * num_virtual, num_microbatches);
  const int num_groups = std::max(1, num_microbatches / num_ranks);
  const std::vector<Pass> passes = grouped_passes(num_groups, num_microbatches, num_virtual);
  const int num_passes = num_virtual * num_microbatches,
            largest_group = (num_microbatches + num_groups - 1) / num_groups;

  for (int rank = 0; rank < num_ranks; ++rank) {
    const int num_warmup = std::min(slope * (num_ranks - 1 - rank) + (num_virtual - 1) * largest_group, num_passes);
    int num_forwards = 0, num_backwards = 0;
    const auto forward = [&] {
      const auto [turn, microbatch] = passes[num_forwards++];
      schedule.add(ActionKind::forward, turn * num_ranks + rank, microbatch);
    };
    const auto backward = [&] {
      const auto [turn, microbatch] = passes[num_backwards++];
      schedule.add(ActionKind::backward, (num_virtual - 1 - turn) * num_ranks + rank, microbatch);
    };

    while (num_forwards < num_warmup) forward();
    while (num_forwards < num_passes) {
      forward();
      backward();
    }
    while (num_backwards < num_passes) backward();
  }
  return schedule;
}

}  // namespace

Schedule interleaved_one_f_one_b_schedule(int num_ranks, int num_microbatches, int num_virtual) {
  return interleaved(2, num_ranks, num_microbatches, num_virtual);
}

// As in ZB-H1, each rank defers weight gradients by one pass more than the previous rank. A gradient returns earlier,
// since no rank waits for weight gradients.
Schedule interleaved_zero_bubble_schedule(int num_ranks, int num_microbatches, int num_virtual) {
  Schedule schedule = interleaved(1, num_ranks, num_microbatches, num_virtual);
  for (int rank = 0; rank < num_ranks; ++rank)
    schedule.ranks[rank] = defer_weight_gradients(schedule.ranks[rank], rank);
  return schedule;
}

}  // namespace echelon
