// ZB-V (Qi et al. 2023, arXiv:2401.10241, section 6, and 2024, arXiv:2405.15362): stages in a V, so that the rank that
// starts a microbatch also ends it. Gradients return to the ranks that store the activations of early microbatches. No
// bubble if F = B = W, with the memory of 1F1B on every rank.
//
//     rank 0   F1F2F3  f1b1w1f2b2w2..      (p = 2; capitals: first half, small letters: second half)
//     rank 1     F1f1F2f2b1w1F3..
//
// The steady state, F B W down and F B W up alternately, needs at least 2p - 1 microbatches. With fewer, the order is
// the same without the missing ones.
#include "schedule/generators/v_rank.h"

#include <algorithm>

namespace echelon {
namespace {

void pass_both_ways(VRank& rank, VRank::Leg leg) {
  rank.backward_input(leg);
  rank.backward_weight(leg);
}

void run_rank(Schedule& schedule, int index, int num_microbatches) {
  const int num_ranks = static_cast<int>(schedule.ranks.size());
  VRank rank(schedule, index);
  for (int i = 0; i < 2 * (num_ranks - index) - 1; ++i) rank.forward(VRank::down);
  for (int i = 0; i < index; ++i) {
    rank.forward(VRank::up);
    rank.forward(VRank::down);
  }
  for (int i = 0; i < num_ranks - index; ++i) {
    rank.forward(VRank::up);
    pass_both_ways(rank, VRank::up);
  }
  while (rank.forwards[VRank::up] < num_microbatches) {
    if (rank.forwards[VRank::down] < num_microbatches) rank.forward(VRank::down);
    pass_both_ways(rank, VRank::down);
    rank.forward(VRank::up);
    pass_both_ways(rank, VRank::up);
  }
  for (int i = 0; i < index; ++i) {  // the last backwards come before weight gradients, since other ranks wait for them
    rank.backward_input(VRank::down);
    rank.backward_input(VRank::up);
  }
  for (int i = 0; i < num_ranks - index; ++i) pass_both_ways(rank, VRank::down);
  while (rank.has_weight(VRank::up)) rank.backward_weight(VRank::up);
  while (rank.has_weight(VRank::down)) rank.backward_weight(VRank::down);
}

}  // namespace

Schedule zb_v_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule = empty_v_schedule(num_ranks, num_microbatches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    run_rank(schedule, rank, std::max(num_microbatches, 2 * num_ranks - 1));
    std::erase_if(schedule.ranks[rank], [&](const Action& action) { return action.microbatch >= num_microbatches; });
  }
  return schedule;
}

}  // namespace echelon
