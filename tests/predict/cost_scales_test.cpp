#include "predict/machine/cost_scales.h"

#include "blueprint/small_config.h"
#include "predict/simulation/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace echelon {
namespace {

/// Steps that compute and communicate for so many seconds, one after the other.
ScaledSeconds steps_of(std::vector<std::pair<double, double>> parts) {
  return [parts = std::move(parts)](const CostScales& scales) {
    std::vector<double> seconds;
    for (const auto& [compute, communication] : parts)
      seconds.push_back(scales.compute * compute + scales.communication * communication);
    return seconds;
  };
}

TEST(FitCostScales, FindsTheTwoFactors) {
  const ScaledSeconds steps = steps_of({{1, 0.1}, {0.6, 1.5}, {2, 0.7}});
  const CostScales truth = {3, 0.4};
  const CostScales found = fit_cost_scales(steps(truth), steps);
  EXPECT_NEAR(found.compute, truth.compute, 0.1 * truth.compute);
  EXPECT_NEAR(found.communication, truth.communication, 0.2 * truth.communication);
  EXPECT_LT(mean_relative_error(steps(found), steps(truth)), 0.05);
}

TEST(FitCostScales, OneStepScalesBothAlike) {
  const ScaledSeconds steps = steps_of({{1, 1}});
  const CostScales found = fit_cost_scales({7}, steps);
  EXPECT_NEAR(found.compute, 3.5, 1e-3);
  EXPECT_NEAR(found.communication, 3.5, 1e-3);
}

TEST(FitCostScales, NothingIsLearntFromWhatIsRight) {
  const ScaledSeconds steps = steps_of({{1, 2}, {3, 1}});
  EXPECT_EQ(fit_cost_scales(steps({}), steps), CostScales{});
}

// Two layouts take ten times what is predicted and one, interrupted by other work, 500 times: the geometric mean of
// these ratios, 37, is worse than no factor for the first two. By hand: |10 w - 1| with w = 1/10, 1/10, 1/500 leaves (0
// + 0 + 0.98) / 3.
TEST(FitCostScales, OneInterruptedStepDoesNotKeepTheOthersFromBeingFitted) {
  const ScaledSeconds steps = steps_of({{1, 0}, {1, 0}, {1, 0}});
  const std::vector<double> measured = {10, 10, 500};
  const CostScales found = fit_cost_scales(measured, steps);
  EXPECT_NEAR(mean_relative_error(steps({}), measured), (0.9 + 0.9 + 0.998) / 3, 1e-12);
  EXPECT_NEAR(mean_relative_error(steps(found), measured), 0.98 / 3, 1e-9);
  EXPECT_NEAR(found.compute, 10, 1e-9);
}

// Whatever was measured, predictions that are all too low leave room for a better factor.
TEST(FitCostScales, LowersTheErrorOfPredictionsThatAreAllTooLow) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> logarithm(0.1, 6);
  for (int trial = 0; trial < 300; ++trial) {
    const ScaledSeconds steps = steps_of({{1, 0.1}, {0.6, 1.5}, {2, 0.7}});
    std::vector<double> measured = steps({});
    for (double& seconds : measured) seconds *= std::exp(logarithm(random));
    EXPECT_LT(mean_relative_error(steps(fit_cost_scales(measured, steps)), measured),
              mean_relative_error(steps({}), measured))
        << trial;
  }
}

TEST(ScaledMachine, ASimulatedStepTakesSoMuchLonger) {
  RunConfig config = testing::small_config();
  config.parallelism.tensor_parallel_degree = config.parallelism.pipeline_parallel_degree =
      config.parallelism.data_parallel_shard_degree = 2;
  const Blueprint blueprint(config);
  const MachineSpec machine = read_machine("a100-80");
  const double seconds = simulate(blueprint, machine).step_seconds;
  for (const double scale : {0.25, 0.9, 1.0, 5.0})
    EXPECT_NEAR(simulate(blueprint, scaled(machine, {scale, scale})).step_seconds, scale * seconds,
                1e-6 * scale * seconds)
        << scale;
  EXPECT_LT(simulate(blueprint, scaled(machine, {0.5, 1})).step_seconds, seconds);
  EXPECT_LT(simulate(blueprint, scaled(machine, {1, 0.5})).step_seconds, seconds);
}

// What is tuned can be written and read again.
TEST(ScaledMachine, IsAMachineFile) {
  for (const double scale : {0.2, 3.0}) {
    const MachineSpec machine = scaled(read_machine("a100-80"), {scale, 1 / scale});
    const MachineSpec read = parse_machine(to_toml(machine), "tuned");
    EXPECT_NEAR(read.nodes[0].device.memory_bandwidth * read.nodes[0].device.memory_efficiency,
                machine.nodes[0].device.memory_bandwidth * machine.nodes[0].device.memory_efficiency, 1);
    EXPECT_NEAR(read.network.efficiency * read.nodes[0].nic_bandwidth,
                machine.network.efficiency * machine.nodes[0].nic_bandwidth, 1);
  }
}

}  // namespace
}  // namespace echelon
