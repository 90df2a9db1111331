// The schedules against the theory: bubbles and activations in flight are closed forms of the papers.
#include "programs.h"
#include "schedule/timeline.h"

#include <algorithm>

namespace echelon {
namespace {

int peak_in_flight(const ComputeOrder& order) {
  int in_flight = 0, peak = 0;
  for (const Action& action : order) {
    in_flight += action.kind == ActionKind::forward ? 1 : -1;
    peak = std::max(peak, in_flight);
  }
  return peak;
}

double bubble_of(const Schedule& schedule, const StageCosts& costs) {
  const auto programs = lower(schedule, train_options(schedule.num_stages));
  return bubble(simulate_programs(programs, cost_of(costs)), programs);
}

class Grid : public testing::TestWithParam<int> {
 protected:
  const int p = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Stages, Grid, testing::Range(1, 9));

// Exact: both sides are one correctly rounded quotient of the same integers.
TEST_P(Grid, BubbleOfGpipeAndOneFOneBIsThePapers) {
  for (int m = 1; m <= 16; ++m) {
    for (const double backward : {1.0, 2.0}) {
      const StageCosts costs{.backward = backward, .num_units = 2};
      EXPECT_EQ(bubble_of(gpipe_schedule(p, m), costs), (p - 1.0) / (m + p - 1)) << "m = " << m;
      EXPECT_EQ(bubble_of(one_f_one_b_schedule(p, m), costs), (p - 1.0) / (m + p - 1)) << "m = " << m;
    }
  }
}

TEST_P(Grid, NaiveKeepsOneRankBusyAtATime) {
  for (int m = 1; m <= 16; ++m) EXPECT_EQ(bubble_of(naive_schedule(p, m), {.num_units = 2}), (p - 1.0) / p);
}

TEST_P(Grid, ActivationsInFlight) {
  for (int m = 1; m <= 16; ++m) {
    for (int stage = 0; stage < p; ++stage) {
      EXPECT_EQ(peak_in_flight(naive_schedule(p, m).ranks[stage]), 1);
      EXPECT_EQ(peak_in_flight(gpipe_schedule(p, m).ranks[stage]), m);
      EXPECT_EQ(peak_in_flight(one_f_one_b_schedule(p, m).ranks[stage]), std::min(m, p - stage));
    }
  }
}

// A transfer no longer than a forward hides behind it, because its receive is posted one action ahead: only filling and
// draining the pipeline shows it.
TEST_P(Grid, TransfersOverlapCompute) {
  for (int m = 1; m <= 16; ++m) {
    const auto programs = lower(gpipe_schedule(p, m), train_options(p));
    const Timeline timeline = simulate_programs(programs, cost_of({.transfer = 1, .num_units = 2}));
    double end = 0;
    for (const Event& event : timeline.events) end = std::max(end, event.end);
    EXPECT_EQ(end, (m + p - 1) * 3.0 + 2 * (p - 1)) << "m = " << m;
  }
}

}  // namespace
}  // namespace echelon
