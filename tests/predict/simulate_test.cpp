// A step on a machine: what can be worked out by hand.
#include "predict/simulation/simulate.h"

#include "base/error.h"
#include "predict/machine/device_time.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Products at 100 flops a second, memory at 10 bytes a second, links of 10 bytes a second inside nodes of two devices
/// and of 4 between them.
MachineSpec slow_machine() {
  NodeSpec node;
  node.num_devices = 2;
  node.device = {
      .name = "slow", .memory_bytes = 1000, .memory_bandwidth = 10, .formats = {{"float32", {.peak_flops = 100}}}};
  node.link = {.bandwidth = 10, .latency_seconds = 0.5};
  node.num_nics = 2;
  node.nic_bandwidth = 2;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

TEST(OperationSeconds, AreThoseOfArithmeticOrOfMemory) {
  const DeviceSpec device = slow_machine().nodes.front().device;
  EXPECT_DOUBLE_EQ(
      operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 100}, device), 20);
  EXPECT_DOUBLE_EQ(
      operation_seconds({.kind = OpKind::matmul, .m = 10, .n = 10, .k = 10, .flops = 2000, .bytes = 400}, device), 40);
}

/// Eight devices a node, arithmetic alone: no latency, no memory traffic to speak of, links without end.
MachineSpec pure_machine(std::vector<double> peaks = {1e12}) {
  MachineSpec machine;
  for (const double peak : peaks) {
    NodeSpec node;
    node.count = peaks.size() > 1 ? 1 : 0;
    node.num_devices = peaks.size() > 1 ? 2 : 8;
    node.device = {.name = "pure",
                   .memory_bytes = 1 << 30,
                   .memory_bandwidth = 1e18,
                   .formats = {{"float32", {.peak_flops = peak}}}};
    node.device.vector_flops = peak;
    node.link = {.bandwidth = 1e18};
    node.num_nics = 8;
    node.nic_bandwidth = 1e18;
    machine.nodes.push_back(node);
  }
  return machine;
}

RunConfig pure_config() {
  RunConfig config;
  config.model = preset("llama-10m");
  config.training.seq_len = 64;
  config.training.global_batch_size = 16;
  config.parallelism.data_parallel_shard_degree = 4;
  return config;
}

// Every flop at the peak: HFU is 1, and the step is what the device's share of the flops takes.
TEST(Simulate, ArithmeticAloneRunsAtThePeak) {
  RunConfig config = pure_config();
  config.parallelism.data_parallel_shard_degree = 1;
  const Simulation result = simulate(Blueprint(config), pure_machine());
  EXPECT_NEAR(result.hfu(), 1, 1e-3);
  EXPECT_NEAR(result.step_seconds, result.hardware_flops / 1e12, 1e-3 * result.step_seconds);
  EXPECT_NEAR(result.mfu(), result.model_flops / result.hardware_flops, 1e-3);
}

// Replicas meet where gradients are reduced, so that one slow rank makes all as slow as itself.
TEST(Simulate, OneSlowRankIsAsBadAsAllSlow) {
  const Blueprint blueprint(pure_config());
  const double even = simulate(blueprint, pure_machine()).step_seconds;
  const Simulation one = simulate(blueprint, pure_machine(), {.slow_ranks = {{2, 1.5}}});
  const Simulation all = simulate(blueprint, pure_machine(), {.slow_ranks = {{0, 1.5}, {1, 1.5}, {2, 1.5}, {3, 1.5}}});
  EXPECT_NEAR(all.step_seconds, 1.5 * even, 1e-3 * even);
  EXPECT_NEAR(one.step_seconds, all.step_seconds, 1e-3 * even);
  ASSERT_EQ(one.ranks.size(), 2U);  // the slow one, and one for the three others, which wait a third of the step
  EXPECT_EQ(one.ranks[0].num_ranks, 3);
  EXPECT_NEAR(one.ranks[0].parts.waiting_seconds, 0.5 * even, 2e-3 * even);
  EXPECT_NEAR(one.ranks[1].parts.waiting_seconds, 0, 1e-3 * even);
  EXPECT_EQ(all.ranks.size(), 1U);
}

TEST(Simulate, ATensorParallelGroupGoesAtThePaceOfItsSlowestMember) {
  RunConfig config = pure_config();
  config.parallelism.tensor_parallel_degree = 2;
  const Blueprint blueprint(config);
  const double first = simulate(blueprint, pure_machine(), {.slow_ranks = {{0, 2}}}).step_seconds;
  EXPECT_DOUBLE_EQ(simulate(blueprint, pure_machine(), {.slow_ranks = {{1, 2}}}).step_seconds, first);
  EXPECT_DOUBLE_EQ(simulate(blueprint, pure_machine(), {.slow_ranks = {{0, 2}, {1, 2}}}).step_seconds, first);
}

// The second node's devices do half as much: replicas on the first wait half of the step, and it lasts as on slow
// devices alone.
TEST(Simulate, AnUnevenClusterGoesAtThePaceOfItsSlowNodes) {
  const Blueprint blueprint(pure_config());
  const Simulation uneven = simulate(blueprint, pure_machine({1e12, 5e11}));
  EXPECT_NEAR(uneven.step_seconds, simulate(blueprint, pure_machine({5e11})).step_seconds, 1e-3 * uneven.step_seconds);
  ASSERT_EQ(uneven.ranks.size(), 2U);
  EXPECT_EQ(uneven.ranks[0].num_ranks, 2);
  EXPECT_NEAR(uneven.ranks[0].parts.waiting_seconds, uneven.step_seconds / 2, 1e-2 * uneven.step_seconds);
  EXPECT_NEAR(uneven.peak_flops, 2 * 1e12 + 2 * 5e11, 1);
}

RunConfig llama3_8b(std::int64_t global_batch_size) {
  RunConfig config;
  config.model = preset("llama3-8b");
  config.training.seq_len = 4096;
  config.training.global_batch_size = global_batch_size;
  config.training.dtype = DType::bfloat16;
  return config;
}

// Tensor-parallel ranks on two nodes wait for the network in every layer; where they are neighbours, only gradients
// cross it.
TEST(Simulate, TensorParallelismAcrossNodesIsSlower) {
  RunConfig config = llama3_8b(16);
  config.parallelism.tensor_parallel_degree = 8;
  config.parallelism.data_parallel_shard_degree = 2;
  const auto seconds = [&](const char* order) {
    config.parallelism.order = parse_axis_order("order", {order});
    return simulate(Blueprint(config), read_machine("h100")).step_seconds;
  };
  EXPECT_EQ(seconds("tp-dp"), seconds("tp-pp-dp"));
  EXPECT_GT(seconds("dp-tp"), 1.05 * seconds("tp-dp"));
}

TEST(Simulate, RefusesSlowRanksThatAreNone) {
  const Blueprint blueprint(pure_config());
  EXPECT_THROW((void)simulate(blueprint, pure_machine(), {.slow_ranks = {{4, 1.5}}}), Error);
  EXPECT_THROW((void)simulate(blueprint, pure_machine(), {.slow_ranks = {{0, -1.0}}}), Error);
}

// What the draws of uncertain rates are timed with: the ranks of the first machine are timed again on the others.
TEST(Simulate, SecondsOnSeveralMachinesAreThoseOnEach) {
  RunConfig config = llama3_8b(32);
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.sequence_parallel = true;
  config.parallelism.pipeline_parallel_degree = 4;
  config.parallelism.data_parallel_shard_degree = 4;
  const Blueprint blueprint(config);
  const MachineSpec h100 = read_machine("h100");
  MachineSpec slow_links = h100, slow_devices = h100;
  slow_links.nodes.front().nic_bandwidth /= 8;
  slow_links.nodes.front().link.bandwidth /= 3;
  slow_links.network.latency_seconds *= 4;
  slow_devices.nodes.front().device.memory_bandwidth /= 2;
  for (auto& [format, rates] : slow_devices.nodes.front().device.formats) rates.peak_flops /= 1.7;
  const std::vector<MachineSpec> machines = {h100, slow_links, slow_devices};
  const std::vector<double> seconds = step_seconds_on(machines, blueprint);
  ASSERT_EQ(seconds.size(), machines.size());
  for (std::size_t i = 0; i < machines.size(); ++i)
    EXPECT_EQ(seconds[i], simulate(blueprint, machines[i]).step_seconds) << i;
  EXPECT_GT(seconds[1], 1.01 * seconds[0]);
  EXPECT_GT(seconds[2], 1.5 * seconds[0]);
}

RunConfig llama3_405b(PipelineSchedule schedule, const std::string& letters) {
  RunConfig config;
  config.model = preset("llama3-8b");
  config.model.hidden_size = 16384;
  config.model.num_hidden_layers = 126;
  config.model.num_attention_heads = 128;
  config.model.intermediate_size = 53248;
  config.training.seq_len = 8192;
  config.training.global_batch_size = 2048;
  config.training.dtype = DType::bfloat16;
  config.parallelism.data_parallel_shard_degree = 128;
  config.parallelism.tensor_parallel_degree = 8;
  config.parallelism.sequence_parallel = true;
  config.parallelism.pipeline_parallel_degree = 16;
  config.parallelism.pipeline_parallel_schedule = schedule;
  config.parallelism.pipeline_parallel_layout.letters = letters;
  return config;
}

// 16,384 ranks cost as many events as one replica's 16 have actions: one end for each.
TEST(Simulate, AlikeRanksAreSimulatedOnce) {
  for (const auto& [schedule, letters] : {std::pair{PipelineSchedule::one_f_one_b, "Et*7|(t*8|)*14,t*7L"},
                                          std::pair{PipelineSchedule::interleaved_one_f_one_b, "E|(t|)*126,L"}}) {
    const Blueprint blueprint(llama3_405b(schedule, letters));
    const Simulation result = simulate(blueprint, read_machine("h100"));
    std::size_t num_actions = 0;
    for (const Program& program : blueprint.programs(ProgramKind::training)) num_actions += program.size();
    EXPECT_EQ(result.ranks.size(), 16U);
    EXPECT_EQ(result.num_events, static_cast<std::int64_t>(num_actions));
    EXPECT_LT(num_actions, 20000U);
    EXPECT_NEAR(result.parts.total_seconds(), result.step_seconds, 1e-9 * result.step_seconds);
  }
}

}  // namespace
}  // namespace echelon
