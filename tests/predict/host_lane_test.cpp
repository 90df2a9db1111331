// The host that issues kernels: closed forms of an action, and steps that the host or the device decides.
#include "predict/step/host_lane.h"
#include "predict/simulation/simulate.h"
#include "predict/step/step_work.h"
#include "spec/machine/shipped_machines.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

CallTrace kernels(int number) {
  CallTrace trace;
  for (int i = 0; i < number; ++i) trace.events.emplace_back(OpRecord{.kind = OpKind::scale, .m = 1, .n = 1, .k = 1});
  return trace;
}

IssueTime issue_of(const CallTrace& trace, const HostCosts& costs, double seconds, double of_collective = 0) {
  return issue_time(
      trace, costs, [&](const OpRecord&) { return seconds; }, [&](const CommRecord&) { return of_collective; });
}

TEST(HostLane, KernelsEndAsTheSlowerOfHostAndDeviceLetsThem) {
  for (const double device : {0.5, 2.0, 3.0}) {
    const IssueTime time = issue_of(kernels(10), {.kernel_seconds = 2}, device);
    EXPECT_DOUBLE_EQ(time.issue_seconds, 20);
    EXPECT_DOUBLE_EQ(time.after_host_seconds, 10 * std::max(2.0, device) + std::min(2.0, device));
  }
  EXPECT_EQ(issue_of(kernels(10), {}, 3).after_host_seconds, 0);
}

TEST(HostLane, AHostThatWaitsAddsItsSecondsToThoseOfTheDevice) {
  const IssueTime time = issue_of(kernels(10), {.kernel_seconds = 2, .rules = {.waits_for_kernels = true}}, 3);
  EXPECT_DOUBLE_EQ(time.issue_seconds, 10 * (2 + 3));
  EXPECT_DOUBLE_EQ(time.after_host_seconds, 10 * (2 + 3));
}

TEST(HostLane, OneKernelForAllTensorsIsOneLaunch) {
  const IssueTime time = issue_of(kernels(10), {.kernel_seconds = 2, .is_one_kernel = true}, 3);
  EXPECT_DOUBLE_EQ(time.issue_seconds, 2);
  EXPECT_DOUBLE_EQ(time.after_host_seconds, 2 + 10 * 3);
}

// Two collectives of 5 s, issued in 1 s each, and a kernel of 1 s that reads the first one.
TEST(HostLane, CollectivesAreIssuedToo) {
  CallTrace trace;
  const CommRecord gather = {.kind = CommKind::all_gather, .group = tp_group, .group_size = 1000, .num_elements = 8};
  trace.events = {gather, gather, CommWait{0}, kernels(1).events.front()};
  const HostCosts costs = {.kernel_seconds = 2, .collective_seconds = 1};
  EXPECT_DOUBLE_EQ(issue_of(trace, costs, 1, 5).issue_seconds, 1 + 1 + 2);
  EXPECT_DOUBLE_EQ(issue_of(trace, costs, 1, 5).after_host_seconds, 1 + 5 + 5);
  // A list of parts: the host waits for the first one, and adds the copies of 1000 parts to each.
  const double parts = 1000 * part_copy_seconds;
  const HostCosts of_lists = {.kernel_seconds = 2, .collective_seconds = 1, .rules = {.copies_parts = true}};
  EXPECT_DOUBLE_EQ(issue_of(trace, of_lists, 1, 5).after_host_seconds, 2 * (parts + 1 + 5));
}

RunConfig config_of(int dp) {
  RunConfig config;
  config.model = preset("llama-10m");
  config.training.seq_len = 64;
  config.training.global_batch_size = 16;
  config.parallelism.data_parallel_shard_degree = dp;
  return config;
}

/// Kernels that take `kernel_seconds` of the device and `launch_seconds` of the host each.
MachineSpec machine_of(double kernel_seconds, double launch_seconds, double collective_launch_seconds = 0) {
  MachineSpec machine;
  NodeSpec& node = machine.nodes.emplace_back();
  node.num_devices = 8;
  node.device = {.name = "even",
                 .memory_bytes = 1 << 30,
                 .memory_bandwidth = 1e30,
                 .operation_seconds = kernel_seconds,
                 .launch_seconds = launch_seconds,
                 .collective_launch_seconds = collective_launch_seconds,
                 .formats = {{"float32", {.peak_flops = 1e30}}}};
  node.link = {.bandwidth = 1e30};
  node.num_nics = 8;
  node.nic_bandwidth = 1e30;
  return machine;
}

double seconds_of(const RunConfig& config, const MachineSpec& machine, const HostRules& rules = {}) {
  SoftwareProfile profile;
  profile.host = rules;
  return simulate(Blueprint(config), machine, {.profile = profile}).step_seconds;
}

struct Launches {
  int kernels = 0, collectives = 0;
};

/// Of a step of rank 0, counted in its traces; with one kernel for each action that is no pass, if there is any.
Launches launches_of(const RunConfig& config, bool updates_all_at_once = false) {
  const Blueprint blueprint(config);
  UnitTraces units(blueprint.config());
  const RankBlueprint rank = blueprint.rank(0, units);
  Launches launches;
  for (const Action& action : rank.program(ProgramKind::training)) {
    const CallTrace& trace = rank.trace(ProgramKind::training).of(action);
    int kernels = 0;
    for (const OpRecord& operation : trace.operations()) kernels += operation.num_kernels;
    launches.kernels += updates_all_at_once && !is_compute(action.kind) ? std::min(kernels, 1) : kernels;
    for (const CommRecord& record : trace.communications()) launches.collectives += record.group_size > 1 ? 1 : 0;
  }
  return launches;
}

TEST(HostLane, AStepThatTheHostDecidesTakesItsLaunches) {
  const Launches alone = launches_of(config_of(1)), sharded = launches_of(config_of(4));
  EXPECT_GT(alone.kernels, 100);
  EXPECT_GT(sharded.collectives, 10);
  EXPECT_NEAR(seconds_of(config_of(1), machine_of(0, 1e-3)), alone.kernels * 1e-3, 1e-9);
  EXPECT_NEAR(seconds_of(config_of(4), machine_of(0, 1e-3, 2e-3)), sharded.kernels * 1e-3 + sharded.collectives * 2e-3,
              1e-9);
}

TEST(HostLane, AStepThatTheDeviceDecidesTakesOneLaunchMore) {
  const RunConfig config = config_of(1);
  const double device = launches_of(config).kernels * 1e-3;
  EXPECT_NEAR(seconds_of(config, machine_of(1e-3, 0)), device, 1e-9);
  EXPECT_NEAR(seconds_of(config, machine_of(1e-3, 1e-5)), device + 1e-5, 1e-9);
}

// What is fused or joined is issued once, and takes the time of one kernel.
TEST(HostLane, KernelsAreFewerThanOperations) {
  const Blueprint blueprint(config_of(1));
  UnitTraces units(blueprint.config());
  const RankBlueprint rank = blueprint.rank(0, units);
  int num_operations = 0;
  for (const Action& action : rank.program(ProgramKind::training))
    num_operations += static_cast<int>(rank.trace(ProgramKind::training).of(action).operations().size());
  EXPECT_LT(1.2 * launches_of(config_of(1)).kernels, num_operations);
}

TEST(HostLane, SecondsOfItsPartAreThoseThatTheDeviceWaits) {
  const RunConfig config = config_of(1);
  const double launches = launches_of(config).kernels * 1e-3;
  const Simulation slow = simulate(Blueprint(config), machine_of(1e-4, 1e-3), {.profile = {}});
  EXPECT_NEAR(slow.parts.host_seconds, 0.9 * launches, 0.01 * launches);
  EXPECT_NEAR(slow.parts.total_seconds(), slow.step_seconds, 1e-9 * slow.step_seconds);
  EXPECT_TRUE(slow.parts.waits_for_host());
  EXPECT_FALSE(simulate(Blueprint(config), machine_of(1e-3, 1e-5), {.profile = {}}).parts.waits_for_host());
}

TEST(HostLane, AGraphIsOneLaunch) {
  RunConfig config = config_of(1);
  config.training.device = DeviceChoice::cuda;
  config.training.cuda_graphs = true;
  const double device = launches_of(config).kernels * 1e-3;
  EXPECT_NEAR(seconds_of(config, machine_of(1e-3, 0.02)), device + 0.02, 1e-9);
  config.training.cuda_graphs = false;
  EXPECT_GT(seconds_of(config, machine_of(1e-3, 0.02)), 10 * device);
}

TEST(HostLane, ASynchronousHostTakesTheSumOfBoth) {
  const RunConfig config = config_of(1);
  const int number = launches_of(config).kernels;
  EXPECT_NEAR(seconds_of(config, machine_of(1e-3, 2e-3), {.waits_for_kernels = true}), number * 3e-3, 1e-9);
}

// Outside of passes software updates all tensors of an action in one kernel.
TEST(HostLane, AnUpdateOfAllTensorsAtOnceIsOneLaunch) {
  const RunConfig config = config_of(1);
  const Launches all = launches_of(config), one = launches_of(config, true);
  EXPECT_LT(one.kernels, all.kernels - 10);
  EXPECT_NEAR(seconds_of(config, machine_of(0, 1e-3), {.updates_all_at_once = true}), one.kernels * 1e-3, 1e-9);
}

/// The step with all that concerns hosts removed.
double seconds_without_hosts(const Blueprint& blueprint, const MachineSpec& machine, const SoftwareProfile& profile) {
  const DeviceMap devices(blueprint.mesh(), machine);
  const StepWorks works(blueprint, profile, devices, {});
  StepWork work = works.work();
  for (RankWork& rank : work.ranks)
    for (Work& each : rank.works) {
      each.issue = {};
      each.starts_in_step = each.holds_host = false;
    }
  return play(work).end;
}

// Whatever the host's rules, seconds of 0 change no bit; seconds that are not 0 do.
TEST(HostLane, AHostWithoutCostsChangesNoBit) {
  for (const int pp : {1, 4})
    for (const int tp : {1, 2}) {
      RunConfig config = config_of(2);
      config.parallelism.pipeline_parallel_degree = pp;
      config.parallelism.tensor_parallel_degree = tp;
      const Blueprint blueprint(config);
      MachineSpec machine = read_machine("h100");
      DeviceSpec& device = machine.nodes.front().device;
      device.launch_seconds = device.collective_launch_seconds = 0;
      for (const HostRules& rules : {HostRules(), HostRules{.waits_for_kernels = true},
                                     HostRules{.waits_for_transfers = true, .copies_parts = true}}) {
        SoftwareProfile profile;
        profile.host = rules;
        const double without = seconds_without_hosts(blueprint, machine, profile);
        EXPECT_EQ(seconds_of(config, machine, rules), without);
        MachineSpec slow = machine;
        slow.nodes.front().device.launch_seconds = 1e-4;
        EXPECT_GT(seconds_of(config, slow, rules), 1.5 * without);
      }
    }
}

}  // namespace
}  // namespace echelon
