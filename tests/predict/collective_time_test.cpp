// Collectives: what can be worked out by hand, what was measured elsewhere, and what must hold for every machine.
#include "predict/collective_time.h"

#include "predict/network_time.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

constexpr double GB = 1e9, KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

MeshShape mesh_of(int dp, int tp = 1, int pp = 1) {
  Coordinates degrees;
  degrees.fill(1);
  degrees[static_cast<std::size_t>(Axis::dp_shard)] = dp;
  degrees[static_cast<std::size_t>(Axis::tp)] = tp;
  degrees[static_cast<std::size_t>(Axis::pp)] = pp;
  return MeshShape(degrees);
}

double world_seconds(CommKind kind, double bytes, int num_ranks, const MachineSpec& machine) {
  const DeviceMap devices(mesh_of(num_ranks), machine);
  return collective_seconds(kind, bytes, devices.placement_of(world_group, 0), machine.network);
}

/// What nccl-tests call the bus bandwidth of an all-reduce.
double all_reduce_bandwidth(double bytes, int num_ranks, const MachineSpec& machine) {
  return 2.0 * (num_ranks - 1) / num_ranks * bytes / world_seconds(CommKind::all_reduce, bytes, num_ranks, machine);
}

/// Nodes of two devices, links of 10 bytes a second, cards of 2; no protocol of NCCL's.
MachineSpec slow_machine() {
  NodeSpec node;
  node.num_devices = 2;
  node.link = {.kind = LinkKind::shared_memory, .bandwidth = 10, .latency_seconds = 0.5};
  node.count = 100;
  node.num_nics = 2;
  node.nic_bandwidth = 2;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

TEST(CommunicationSeconds, OfARingInsideANodeAndBetweenNodes) {
  const MachineSpec machine = slow_machine();
  const CommRecord two = {.kind = CommKind::all_reduce, .group = shard_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(two, 0, DeviceMap(mesh_of(2), machine)), 40.0 / 10 + 2 * 0.5);  // 2 (n - 1)/n of 40 bytes
  const CommRecord four = {.kind = CommKind::all_gather, .group = shard_group, .group_size = 4, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(four, 0, DeviceMap(mesh_of(4), machine)), 30.0 / 4 + 2 * 0.5);  // both cards carry one ring; two of its hops are links
}

TEST(CommunicationSeconds, GroupsThatCommunicateTogetherShareTheCards) {
  const MachineSpec machine = slow_machine();
  const CommRecord gather = {.kind = CommKind::all_gather, .group = shard_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(gather, 0, DeviceMap(mesh_of(2, 2), machine)), 20.0 / 2);  // one card each
}

TEST(CommunicationSeconds, OfATransferBetweenStages) {
  const MachineSpec machine = slow_machine();
  const CommRecord send = {.kind = CommKind::send, .group = pipeline_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10, .peer = 1};
  EXPECT_DOUBLE_EQ(communication_seconds(send, 0, DeviceMap(mesh_of(1, 1, 2), machine)), 40.0 / 10 + 0.5);
  EXPECT_DOUBLE_EQ(communication_seconds(send, 0, DeviceMap(mesh_of(1, 2, 2), machine)), 40.0 / 2);  // the other tensor rank sends too, each by its card
}

/// A transfer whose sender is alone still drives no more than the card beside it.
TEST(CommunicationSeconds, ALoneSenderHasOneCard) {
  MachineSpec machine = slow_machine();
  machine.nodes.front().num_devices = 1;
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::send, 40, 2, machine), 40.0 / 4);  // both cards are the one device's
  machine.nodes.front().num_devices = 2;
  machine.nodes.front().num_nics = 1;
  const DeviceMap devices(mesh_of(1, 2, 2), machine);
  EXPECT_DOUBLE_EQ(collective_seconds(CommKind::send, 40, devices.placement_of_pair(0, 2), machine.network), 40.0 / 1);  // two senders, one card
}

struct Measured {
  const char* what;
  const char* machine;
  int num_ranks;
  double bytes, bandwidth;  // GB/s
  double tolerance;
};

/// Large all-reduces (sources: docs/machines.md).
constexpr Measured large[] = {
    {"V100 node", "v100", 8, 16 * GiB, 122, 0.02},
    {"A100 node", "a100-80", 8, 16 * GiB, 232, 0.02},
    {"H100 node with NVLink SHARP", "h100", 8, 16 * GiB, 480, 0.02},
    {"H200 node with NVLink SHARP", "h200", 8, 16 * GiB, 482.26, 0.02},
    {"B200 node with NVLink SHARP", "b200", 8, 16 * GiB, 845.67, 0.02},
    {"DGX A100 nodes", "a100-80", 64, 16 * GiB, 192, 0.02},
    {"DGX H100 nodes", "h100", 64, 16 * GiB, 380, 0.04},
    {"B200, 4 nodes", "b200", 32, 16 * GiB, 381.8, 0.02},
    {"Jean Zay, 4 nodes", "a100-80-omnipath", 32, 4e9, 5.06125, 0.02},
};

TEST(CollectiveSeconds, OfLargeAllReducesAreAsMeasured) {
  for (const Measured& row : large)
    EXPECT_NEAR(all_reduce_bandwidth(row.bytes, row.num_ranks, read_machine(row.machine)) / (row.bandwidth * GB), 1, row.tolerance) << row.what;
}

TEST(CollectiveSeconds, WithoutAndWithSumsInSwitches) {
  MachineSpec machine = read_machine("h100");
  machine.network.reduces_in_switch = true;
  EXPECT_NEAR(all_reduce_bandwidth(16 * GiB, 64, machine) / (480 * GB), 1, 0.15);
  machine.nodes.front().link.reduces_in_switch = false;
  EXPECT_NEAR(all_reduce_bandwidth(16 * GiB, 8, machine) / (370 * GB), 1, 0.02);
}

/// One card a device: what a ring over `efficiency` of it gives.
TEST(CollectiveSeconds, OverOneCard) {
  for (const auto& [gbit, efficiency, measured] : {std::tuple{200, 0.96, 24.0}, {400, 0.96, 48.0}, {100, 0.8, 10.0}}) {
    MachineSpec machine = read_machine("a100-80");
    machine.nodes.front().num_devices = 1;
    machine.nodes.front().num_nics = 1;
    machine.nodes.front().nic_bandwidth = gbit * 1e9 / 8;
    machine.network.efficiency = efficiency;
    EXPECT_NEAR(all_reduce_bandwidth(4 * GiB, 4, machine) / (measured * GB), 1, 0.02) << gbit;
  }
}

TEST(CollectiveSeconds, OverPcieIsARingOverABus) {
  for (const auto& [peak, measured] : {std::pair{31.5, 24.0}, {63.0, 48.0}}) {
    MachineSpec machine = read_machine("a100-80");
    machine.nodes.front().link = {.kind = LinkKind::ring, .bandwidth = peak * GB, .efficiency = 0.762, .latency_seconds = 1e-6};
    EXPECT_NEAR(all_reduce_bandwidth(4 * GiB, 8, machine) / (measured * GB), 1, 0.02);
  }
}

TEST(CollectiveSeconds, OfACopyBetweenTwoDevices) {
  const MachineSpec machine = read_machine("h200");
  const DeviceMap devices(mesh_of(8), machine);
  const double seconds = collective_seconds(CommKind::send, 4 * GiB, devices.placement_of_pair(0, 1), machine.network);
  EXPECT_NEAR(4 * GiB / seconds / (396.4 * GB), 1, 0.08);  // a pair copy has less to do than a ring's step
  EXPECT_NEAR(machine.nodes.front().device.host_bandwidth / (55.43 * GB), 1, 1e-9);
}

/// 4 nodes of 8 devices, whose fabric the source does not name: cards and start are a fit. NCCL changes its algorithm between 8 and 32 MiB, and the curve is no
/// line.
TEST(CollectiveSeconds, FollowTheCurveOfSizes) {
  MachineSpec machine = read_machine("a100-80");
  machine.nodes.front().nic_bandwidth = 12.5 * GB;
  machine.nodes.front().link.start_seconds = 40e-6;
  machine.network.efficiency = 0.94;
  constexpr std::tuple<double, double, double> rows[] = {
      {32 * KiB, 0.92, 0.15}, {64 * KiB, 1.61, 0.15}, {128 * KiB, 3.05, 0.15},  {256 * KiB, 5.18, 0.15},  {512 * KiB, 9.17, 0.15},
      {1 * MiB, 17.13, 0.15}, {2 * MiB, 23.79, 0.25}, {4 * MiB, 40.3, 0.15},    {8 * MiB, 68.62, 0.3},    {16 * MiB, 93.93, 0.3},
      {32 * MiB, 98.34, 0.3}, {64 * MiB, 84.9, 0.15}, {128 * MiB, 88.23, 0.05}, {256 * MiB, 91.01, 0.05}, {512 * MiB, 92.95, 0.05},
      {1 * GiB, 94.15, 0.05}, {2 * GiB, 92.66, 0.05}, {4 * GiB, 92.09, 0.05},   {8 * GiB, 91.8, 0.05},    {16 * GiB, 91.69, 0.05},
  };
  for (const auto& [bytes, bandwidth, tolerance] : rows) EXPECT_NEAR(all_reduce_bandwidth(bytes, 32, machine) / (bandwidth * GB), 1, tolerance) << bytes;
}

constexpr CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter, CommKind::all_to_all, CommKind::broadcast};

class OnShipped : public testing::TestWithParam<const char*> {};

TEST_P(OnShipped, MoreBytesAreNeverFaster) {
  const MachineSpec machine = read_machine(GetParam());
  for (const CommKind kind : kinds)
    for (const int num_ranks : {2, 8, 16, 24, 64, 1024}) {
      double before = 0;
      for (double bytes = 8; bytes < 64 * GiB; bytes *= 1.7) {
        const double seconds = world_seconds(kind, bytes, num_ranks, machine);
        EXPECT_GE(seconds, before) << name_of(kind) << " " << num_ranks << " " << bytes;
        before = seconds;
      }
    }
}

TEST_P(OnShipped, MoreNodesAreNeverFaster) {
  const MachineSpec machine = read_machine(GetParam());
  const auto per_node = static_cast<int>(machine.nodes.front().num_devices);
  for (const CommKind kind : kinds)
    for (const double bytes : {8.0, 1 * MiB, 1 * GiB}) {
      double before = 0;
      for (int nodes = 1; nodes <= 512; nodes = nodes < 8 ? nodes + 1 : nodes * 2) {
        const double seconds = world_seconds(kind, bytes, nodes * per_node, machine);
        EXPECT_GE(seconds, before * (1 - 1e-12)) << name_of(kind) << " " << nodes << " nodes, " << bytes;
        before = seconds;
      }
    }
}

TEST_P(OnShipped, LessBandwidthIsNeverFaster) {
  const MachineSpec machine = read_machine(GetParam());
  MachineSpec slow_links = machine, slow_cards = machine, far = machine, thin = machine;
  slow_links.nodes.front().link.bandwidth /= 2;
  slow_cards.nodes.front().nic_bandwidth /= 2;
  far.network.latency_seconds *= 2;
  thin.network.oversubscription = 4;
  thin.network.nodes_per_leaf = 2;
  for (const CommKind kind : kinds)
    for (const double bytes : {8.0, 1 * MiB, 1 * GiB})
      for (const int num_ranks : {2, 8, 16, 64})
        for (const MachineSpec* less : {&slow_links, &slow_cards, &far, &thin})
          EXPECT_GE(world_seconds(kind, bytes, num_ranks, *less), world_seconds(kind, bytes, num_ranks, machine)) << name_of(kind) << " " << num_ranks;
}

INSTANTIATE_TEST_SUITE_P(Machines, OnShipped, testing::Values("v100", "a100-80", "h100", "b200"), [](const auto& each) {
  std::string name(each.param);
  return name.substr(0, name.find('-'));
});

TEST(MeasuredSeconds, LieBetweenMeasuredSizesAndGroups) {
  NodeLink link;
  link.measured = {{Collective::all_reduce, 2, {1e3, 1e5}, {1e-6, 1e-5}}, {Collective::all_reduce, 4, {1e3, 1e5}, {3e-6, 3e-5}}};
  const auto seconds = [&](double bytes, int num_ranks) { return measured_seconds(link, Collective::all_reduce, bytes, num_ranks).value(); };
  EXPECT_DOUBLE_EQ(seconds(1e3, 2), 1e-6);
  EXPECT_NEAR(seconds(1e4, 2), std::sqrt(1e-11), 1e-12);  // the middle of a straight line in logarithms
  EXPECT_DOUBLE_EQ(seconds(8, 2), 1e-6);
  EXPECT_DOUBLE_EQ(seconds(1e6, 2), 1e-4);
  EXPECT_DOUBLE_EQ(seconds(1e3, 3), 2e-6);
  EXPECT_DOUBLE_EQ(seconds(1e3, 8), 6e-6);
  EXPECT_EQ(measured_seconds(link, Collective::broadcast, 8, 2), std::nullopt);
}

TEST(MeasuredSeconds, StandInForTheModel) {
  MachineSpec machine = slow_machine();
  machine.nodes.front().link.measured = {{Collective::all_gather, 2, {40}, {7}}};
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::all_gather, 40, 2, machine), 7);
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::all_reduce, 40, 2, machine), 5);
}

}  // namespace
}  // namespace echelon
