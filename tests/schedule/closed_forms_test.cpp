// Cost and activations in flight of the schedules against the closed forms of their papers, over a grid of (p, m, v).
#include "schedule/play_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr PassTimes unequal = {.forward = 4, .backward_input = 5, .backward_weight = 2};  // integers: sums are exact

double cost_of_longest_rank(const Schedule& schedule, const PassTimes& times) {
  const Timeline timeline = play(schedule, times);
  std::vector<double> first(schedule.ranks.size(), 1e300), last(schedule.ranks.size(), 0);
  for (const Event& event : timeline.events) {
    first[event.rank] = std::min(first[event.rank], event.start);
    last[event.rank] = std::max(last[event.rank], event.end);
  }
  double cost = 0;
  for (std::size_t rank = 0; rank < first.size(); ++rank) cost = std::max(cost, last[rank] - first[rank]);
  return cost;
}

// Forwards whose backward (or weight gradient, where it is apart) has not ended, of all the rank's stages.
int peak_in_flight(const ComputeOrder& order) {
  int in_flight = 0, peak = 0;
  for (const Action& action : order) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++in_flight);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) --in_flight;
  }
  return peak;
}

// Narayanan et al. 2021, section 2.2: bubble (p-1)(F+B)/v. Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.3: 1 + (p-1)/(p v) times p microbatches
// on the first rank, that is p v + p - 1 stages' worth.
TEST(ClosedForms, InterleavedOneFOneB) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 4 * p; m += p) {
      for (int v = 2; v <= 4; ++v) {
        const Schedule schedule = interleaved_one_f_one_b_schedule(p, m, v);
        EXPECT_EQ(cost_of_longest_rank(schedule, {.forward = 4.0 * v, .backward_input = 5.0 * v, .backward_weight = 2.0 * v}), (m * v + p - 1) * 11.0);
        EXPECT_EQ(peak_in_flight(schedule.ranks[0]), std::min(m * v, p * v + p - 1)) << p << " " << m << " " << v;
      }
    }
  }
}

// Qi et al. 2023 (arXiv:2401.10241), table 1: bubble (p-1)(F+B-W) with p microbatches in flight, and (p-1)(F+B-2W) with 2p - 1. From as many microbatches on as
// fill the pipeline, and with passes of one length; unequal ones shift the steady state.
TEST(ClosedForms, HandcraftedZeroBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 4 * p; ++m) {
      EXPECT_EQ(cost_of_longest_rank(zb_h1_schedule(p, m), {}), 3.0 * m + (p - 1)) << p << " " << m;
      EXPECT_EQ(cost_of_longest_rank(zb_h2_schedule(p, m), {}), 3.0 * m) << p << " " << m;
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(peak_in_flight(zb_h1_schedule(p, m).ranks[rank]), p);
        EXPECT_EQ(peak_in_flight(zb_h2_schedule(p, m).ranks[rank]), 2 * p - 1);
      }
    }
  }
}

TEST(ClosedForms, NoScheduleWaitsForever) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 20; ++m) {
      EXPECT_NO_THROW((void)play(zb_h1_schedule(p, m), unequal));
      EXPECT_NO_THROW((void)play(zb_h2_schedule(p, m), unequal));
      for (int v = 2; v <= 4; ++v) {
        EXPECT_NO_THROW((void)play(interleaved_one_f_one_b_schedule(p, m, v), unequal)) << p << " " << m << " " << v;
        EXPECT_NO_THROW((void)play(interleaved_zero_bubble_schedule(p, m, v), unequal)) << p << " " << m << " " << v;
      }
    }
  }
}

}  // namespace
}  // namespace echelon
