// Goodput against a job that fails by chance, and the best interval against all others.
#include "predict/simulation/failures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace echelon {
namespace {

/// Trains `num_intervals` with failures at exponential distances: what was not checkpointed is done again, and so is a
/// restart that fails.
double simulated_goodput(const FailureModel& failures, double interval, int num_intervals) {
  std::mt19937_64 random(2006);
  std::exponential_distribution<double> distance(1 / failures.mtbf_seconds);
  double time = 0, next_failure = distance(random);
  const auto succeeds = [&](double seconds) {
    if (time + seconds <= next_failure) {
      time += seconds;
      return true;
    }
    time = next_failure;
    next_failure += distance(random);
    return false;
  };
  for (int done = 0; done < num_intervals; ++done) {
    while (!succeeds(interval + failures.checkpoint_seconds))
      while (!succeeds(failures.restart_seconds)) {
      }
  }
  return num_intervals * interval / time;
}

TEST(Failures, GoodputIsThatOfAJobThatFailsByChance) {
  for (const double restart : {0.0, 60.0, 3000.0})
    for (const double interval : {100.0, 1000.0, 7200.0}) {
      const FailureModel failures = {.mtbf_seconds = 3600, .checkpoint_seconds = 40, .restart_seconds = restart};
      EXPECT_NEAR(goodput(failures, interval) / simulated_goodput(failures, interval, 100000), 1, 0.02)
          << restart << " " << interval;
    }
}

TEST(Failures, NoIntervalIsBetterThanTheBest) {
  for (const double checkpoint : {0.5, 30.0, 600.0, 20000.0}) {
    const FailureModel failures = {.mtbf_seconds = 10000, .checkpoint_seconds = checkpoint, .restart_seconds = 300};
    const double best = best_interval_seconds(failures);
    for (double interval = best / 8; interval < best * 8; interval *= 1.1)
      EXPECT_LE(goodput(failures, interval), goodput(failures, best) * (1 + 1e-12));
  }
}

// Young's first order is the limit for cheap checkpoints; Daly's estimate is within 1 % of the best up to delta = M/2,
// and its goodput still closer.
TEST(Failures, TheEstimatesOfYoungAndDalyAreNearTheBest) {
  const FailureModel cheap = {.mtbf_seconds = 1e6, .checkpoint_seconds = 1e-2};
  EXPECT_NEAR(young_interval_seconds(cheap) / best_interval_seconds(cheap), 1, 1e-3);
  for (const double ratio : {0.001, 0.01, 0.1, 0.5}) {
    const FailureModel failures = {.mtbf_seconds = 1000, .checkpoint_seconds = 1000 * ratio};
    EXPECT_NEAR(daly_interval_seconds(failures) / best_interval_seconds(failures), 1, 0.01) << ratio;
    EXPECT_NEAR(goodput(failures, daly_interval_seconds(failures)) / goodput(failures, best_interval_seconds(failures)),
                1, 1e-4)
        << ratio;
  }
}

TEST(Failures, WithoutCostOrFailuresNothingIsLost) {
  EXPECT_NEAR(goodput({.mtbf_seconds = 1e15}, 1000), 1, 1e-9);
  EXPECT_NEAR(best_interval_seconds({.mtbf_seconds = 1000}), 0, 1e-3);
  EXPECT_EQ(goodput({.mtbf_seconds = 1000, .checkpoint_seconds = 1}, 0), 0);
}

}  // namespace
}  // namespace echelon
