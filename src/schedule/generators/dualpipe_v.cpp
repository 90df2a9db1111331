// DualPipeV: DualPipe of DeepSeek-V3 (arXiv:2412.19437, section 3.2), folded into a V over half the ranks (Sea AI Lab).
// Like in ZB-V, a rank holds a stage of the first half and its mirror in the second half. In the steady state a forward
// of one half is paired with a backward of the other. DualPipe computes the pair at once, so that each hides the
// messages of the other. Here the two run one after the other (docs/reference/limits.md); the order is the same.
//
// Backwards are fused except where splitting them fills a bubble: while the pipeline fills, and in the second half of
// its draining. At least 2p microbatches.
#include "schedule/generators/v_rank.h"

namespace echelon {
namespace {

constexpr VRank::Leg down = VRank::down, up = VRank::up;

void drain(VRank& rank, int index, int num_ranks);

void run_rank(Schedule& schedule, int index) {
  const int num_ranks = static_cast<int>(schedule.ranks.size());
  VRank rank(schedule, index);
  for (int i = 0; i < 2 * (num_ranks - 1 - index); ++i) rank.forward(down);
  for (int i = 0; i < index + 1; ++i) {
    rank.forward(down);
    rank.forward(up);
  }
  for (int i = 0; i < num_ranks - 1 - index; ++i) {
    rank.backward_input(up);
    rank.backward_weight(up);
    rank.forward(up);
  }
  while (rank.forwards[down] < schedule.num_microbatches) {
    rank.forward(down);
    rank.backward(up);
    rank.forward(up);
    rank.backward(down);
  }
  while (rank.forwards[up] < schedule.num_microbatches) {
    rank.backward(up);
    rank.forward(up);
    rank.backward(down);
  }
  drain(rank, index, num_ranks);
}

// Backwards alternate between the two legs. From the middle on, weight gradients are deferred to the end.
void drain(VRank& rank, int index, int num_ranks) {
  std::deque<VRank::Leg> deferred;
  int num_done = 0;
  const auto backward = [&](VRank::Leg leg) {
    if (num_done++ < index + 1) return rank.backward(leg);
    rank.backward_input(leg);
    deferred.push_back(leg);
  };
  const auto backward_weight = [&] {
    if (deferred.empty()) return;
    rank.backward_weight(deferred.front());
    deferred.pop_front();
  };
  for (int i = 0; i < index + 1; ++i) {
    backward(up);
    backward(down);
  }
  for (int i = 0; i < num_ranks - 1 - index; ++i) {
    backward_weight();
    backward(down);
  }
  while (!deferred.empty()) backward_weight();
}

}  // namespace

Schedule dualpipe_v_schedule(int num_ranks, int num_microbatches) {
  Schedule schedule = empty_v_schedule(num_ranks, num_microbatches);
  for (int rank = 0; rank < num_ranks; ++rank) run_rank(schedule, rank);
  return schedule;
}

}  // namespace echelon
