#include "predict/machine/cost_scales.h"

#include "blueprint/small_config.h"
#include "predict/simulation/simulate.h"

#include <gtest/gtest.h>

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
