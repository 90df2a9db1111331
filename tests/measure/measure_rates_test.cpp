// Rates in rounds, and peaks that are too low or that nothing reaches.
#include "measure/measure_rates.h"

#include "measure/measure_scaling.h"
#include "spec/machine/probe_errors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon {
namespace {

TEST(RatesInRounds, TheBestCountsAndTheMedianShowsWhetherRoundsAgree) {
  EXPECT_EQ(of_rounds({80, 100, 99, 98, 40}).best, 100);
  EXPECT_NEAR(of_rounds({80, 100, 99, 98, 40}).spread, 0.02, 1e-12);  // the median is 98
  EXPECT_DOUBLE_EQ(of_rounds({50, 100, 50, 50, 60}).spread, 0.5);
  EXPECT_EQ(of_rounds({0, 0, 0}).spread, 0);  // the processor has no such instruction
}

TEST(RatesInRounds, HaveASpreadForEveryRate) {
  HostSpec machine;
  double rate = 1e9;
  const auto growing = [&](int num_threads) { return rate += num_threads; };
  measure_rates_in_rounds(
      machine, 0.01,
      {.matmul = [&](int num_threads, double /*seconds*/) { return growing(num_threads); },
       .attention = [&](DType /*dtype*/, int num_threads, double /*seconds*/) { return growing(num_threads); }});
  EXPECT_GT(machine.core.float32_flops, 0);
  EXPECT_GT(machine.device.read_bandwidth, 0);
  EXPECT_GT(machine.core.sgemm_flops, 1e9);
  EXPECT_GT(machine.core_spread.sgemm_flops, 0);  // it grew from round to round
  EXPECT_GT(machine.device.attention_bfloat16_flops, machine.device.attention_float32_flops);
}

TEST(AttentionRate, IsMeasuredInEachFormat) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const double rate = attention_rate({})(dtype, 1, 0);
    EXPECT_GT(rate, 0);
    EXPECT_TRUE(std::isfinite(rate));
  }
}

TEST(RatesInRounds, APeakThatWasTooLowIsProbedAgain) {
  HostSpec machine;
  machine.core = machine.device = {.float32_flops = 1, .float64_flops = 1, .sgemm_flops = 1e6};
  ASSERT_FALSE(probe_errors(machine).empty());
  probe_again(machine, 0.01);
  EXPECT_TRUE(probe_errors(machine).empty());
  EXPECT_GT(machine.core.float32_flops, 1e6);
  EXPECT_GT(machine.core_spread.float32_flops, unsure_spread);
}

TEST(RatesInRounds, AMatmulThatNoPeakReachesStaysAnError) {
  HostSpec machine;
  machine.core = {.float32_flops = 1, .sgemm_flops = 1e18};
  probe_again(machine, 0.01);
  EXPECT_EQ(probe_errors(machine).size(), 1U);
}

TEST(CoreScaling, IsARatioOfTheSameTurn) {
  int turn = 0;
  // Both rates halve from turn to turn, but two cores always do 1.5 times what one does.
  const auto matmul = [&](int num_threads, double /*seconds*/) {
    return (num_threads == 1 ? 1.0 : 1.5) / static_cast<double>(1 << turn++ / 2);
  };
  const std::vector<CoreScaling> scaling = measure_scaling({{0}, {0}}, 0.01, matmul);
  ASSERT_EQ(scaling.size(), 1U);
  EXPECT_EQ(scaling[0].num_cores, 2);
  EXPECT_DOUBLE_EQ(scaling[0].matmul.best, 1.5);
  EXPECT_GT(scaling[0].multiply_adds.best, 0);
  EXPECT_TRUE(measure_scaling({{0}}, 0.01, matmul).empty());
}

TEST(CoreScaling, CountsTheThreadsOfACore) {
  const auto matmul = [](int num_threads, double /*seconds*/) { return static_cast<double>(num_threads); };
  const std::vector<CoreScaling> scaling = measure_scaling({{0, 0}, {0, 0}}, 0.01, matmul);
  ASSERT_EQ(scaling.size(), 2U);
  EXPECT_EQ(scaling[1].threads_per_core, 2);
  EXPECT_EQ(scaling[1].matmul.best, 0);
  EXPECT_DOUBLE_EQ(scaling[0].matmul.best, 2);
}

}  // namespace
}  // namespace echelon
