// Collectives: what can be worked out by hand, what was measured elsewhere, and what must hold for every machine.
#include "predict/machine/collective_time.h"

#include "predict/machine/network_time.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace echelon {
namespace {

constexpr double GB = 1e9, KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

MeshShape mesh_of(int dp, int tp = 1, int pp = 1) {
  return MeshShape({{Axis::pp, pp}, {Axis::dp_shard, dp}, {Axis::tp, tp}});
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
MachineSpec machine_of_slow_links() {
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
  const MachineSpec machine = machine_of_slow_links();
  const CommRecord two = {
      .kind = CommKind::all_reduce, .group = shard_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10};
  // 2 (n - 1)/n of 40 bytes.
  EXPECT_DOUBLE_EQ(communication_seconds(two, 0, DeviceMap(mesh_of(2), machine)), 40.0 / 10 + 2 * 0.5);
  const CommRecord four = {
      .kind = CommKind::all_gather, .group = shard_group, .group_size = 4, .dtype = DType::float32, .num_elements = 10};
  // Both cards carry one ring; two of its hops are links.
  EXPECT_DOUBLE_EQ(communication_seconds(four, 0, DeviceMap(mesh_of(4), machine)), 30.0 / 4 + 2 * 0.5);
}

TEST(CommunicationSeconds, GroupsThatCommunicateTogetherShareTheCards) {
  const MachineSpec machine = machine_of_slow_links();
  const CommRecord gather = {
      .kind = CommKind::all_gather, .group = shard_group, .group_size = 2, .dtype = DType::float32, .num_elements = 10};
  EXPECT_DOUBLE_EQ(communication_seconds(gather, 0, DeviceMap(mesh_of(2, 2), machine)), 20.0 / 2);  // one card each
}

TEST(CommunicationSeconds, OfATransferBetweenStages) {
  const MachineSpec machine = machine_of_slow_links();
  const CommRecord send = {.kind = CommKind::send,
                           .group = pipeline_group,
                           .group_size = 2,
                           .dtype = DType::float32,
                           .num_elements = 10,
                           .peer = 1};
  EXPECT_DOUBLE_EQ(communication_seconds(send, 0, DeviceMap(mesh_of(1, 1, 2), machine)), 40.0 / 10 + 0.5);
  // The other tensor rank sends too, each by its card.
  EXPECT_DOUBLE_EQ(communication_seconds(send, 0, DeviceMap(mesh_of(1, 2, 2), machine)), 40.0 / 2);
}

TEST(CommunicationSeconds, OfATransferFindsItsPeer) {
  MachineSpec machine = machine_of_slow_links();
  machine.nodes.front().num_devices = 4;
  const DeviceMap devices(mesh_of(1, 2, 4), machine);  // two stages of two ranks on a node
  const CommRecord send = {
      .kind = CommKind::send, .group = pipeline_group, .group_size = 4, .num_elements = 1, .peer = 1};
  EXPECT_EQ(placement_of(send, 0, devices).num_nodes, 1);
  EXPECT_EQ(placement_of(send, 5, devices).num_nodes, 2);
}

/// A transfer whose sender is alone still drives no more than the card beside it.
TEST(CommunicationSeconds, ALoneSenderHasOneCard) {
  MachineSpec machine = machine_of_slow_links();
  machine.nodes.front().num_devices = 1;
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::send, 40, 2, machine), 40.0 / 4);  // both cards are the one device's
  machine.nodes.front().num_devices = 2;
  machine.nodes.front().num_nics = 1;
  const DeviceMap devices(mesh_of(1, 2, 2), machine);
  // Two senders, one card.
  EXPECT_DOUBLE_EQ(collective_seconds(CommKind::send, 40, devices.placement_of_pair(0, 2), machine.network), 40.0 / 1);
}

/// A measurement of others (sources: docs/results/machine-rates.md) and what is predicted for it, in GB/s.
struct Row {
  std::string what;
  double measured, predicted, tolerance;
};

constexpr double large = 16 * GiB;

Row all_reduce_row(std::string what, double measured, double bytes, int num_ranks, const MachineSpec& machine,
                   double tolerance = 0.02) {
  return {std::move(what), measured, all_reduce_bandwidth(bytes, num_ranks, machine) / GB, tolerance};
}

/// Machines as they are shipped.
void add_shipped(std::vector<Row>& rows) {
  rows.push_back(all_reduce_row("V100 node, NVLink 2", 122, large, 8, read_machine("v100")));
  rows.push_back(all_reduce_row("A100 node, NVLink 3", 232, large, 8, read_machine("a100-80")));
  MachineSpec rings = read_machine("h100");
  rings.nodes.front().link.reduces_in_switch = false;
  rows.push_back(all_reduce_row("H100 node, NVLink 4, rings", 370, large, 8, rings));
  rows.push_back(all_reduce_row("H100 node, NVLink SHARP", 480, large, 8, read_machine("h100")));
  rows.push_back(all_reduce_row("H200 node, NVLink SHARP", 482.26, large, 8, read_machine("h200")));
  rows.push_back(all_reduce_row("B200 node, NVLink SHARP", 845.67, large, 8, read_machine("b200")));
  rows.push_back(all_reduce_row("DGX A100 nodes, 8 x 200 Gbit/s", 192, large, 64, read_machine("a100-80")));
  rows.push_back(all_reduce_row("DGX H100 nodes, 8 x 400 Gbit/s", 380, large, 64, read_machine("h100"), 0.04));
  MachineSpec sharp = read_machine("h100");
  sharp.network.reduces_in_switch = true;
  rows.push_back(all_reduce_row("DGX H100 nodes, InfiniBand SHARP", 480, large, 64, sharp, 0.15));
  rows.push_back(all_reduce_row("B200, 4 nodes, 8 x 400 Gbit/s", 381.8, large, 32, read_machine("b200")));
  rows.push_back(all_reduce_row("Jean Zay, 4 nodes, 4 x 100 Gbit/s Omni-Path", 5.06125, 4e9, 32,
                                read_machine("a100-80-omnipath")));
}

/// One device a node and one card, of which rings reach `efficiency`; and devices on a bus.
void add_plain(std::vector<Row>& rows) {
  for (const auto& [what, gbit, efficiency, measured] : {std::tuple{"1 x 200 Gbit/s RDMA", 200, 0.96, 24.0},
                                                         {"1 x 400 Gbit/s RDMA", 400, 0.96, 48.0},
                                                         {"100 Gbit/s Ethernet, TCP", 100, 0.8, 10.0}}) {
    MachineSpec machine = read_machine("a100-80");
    machine.nodes.front().num_devices = 1;
    machine.nodes.front().num_nics = 1;
    machine.nodes.front().nic_bandwidth = gbit * 1e9 / 8;
    machine.network.efficiency = efficiency;
    rows.push_back(all_reduce_row(what, measured, large, 4, machine));
  }
  for (const auto& [what, peak, measured] : {std::tuple{"PCIe 4.0 x16", 31.5, 24.0}, {"PCIe 5.0 x16", 63.0, 48.0}}) {
    MachineSpec machine = read_machine("a100-80");
    machine.nodes.front().link = {
        .kind = LinkKind::ring, .bandwidth = peak * GB, .efficiency = 0.762, .latency_seconds = 1e-6};
    rows.push_back(all_reduce_row(what, measured, large, 8, machine));
  }
}

/// A pair has less to do than a ring's step, in which a device receives, sums and sends.
void add_copies(std::vector<Row>& rows) {
  const MachineSpec machine = read_machine("h200");
  const DeviceMap devices(mesh_of(8), machine);
  const double copy =
      large / collective_seconds(CommKind::send, large, devices.placement_of_pair(0, 1), machine.network) / GB;
  rows.push_back({"H200, copy between two devices", 396.4, copy, 0.08});
  rows.push_back({"H200, copies both ways", 783.73, 2 * copy, 0.08});
  rows.push_back({"H200, host to device", 55.43, machine.nodes.front().device.host_bandwidth / GB, 0.001});
}

/// 4 nodes of 8 devices, whose fabric the source does not name: the cards and the start are a fit. NCCL changes its
/// algorithm between 8 and 32 MiB, where the measured bandwidth rises above that of the largest buffers.
void add_sizes(std::vector<Row>& rows) {
  MachineSpec machine = read_machine("a100-80");
  machine.nodes.front().nic_bandwidth = 12.5 * GB;
  machine.nodes.front().link.start_seconds = 40e-6;
  machine.network.efficiency = 0.94;
  constexpr double measured[] = {0.92,  1.61, 3.05,  5.18,  9.17,  17.13, 23.79, 40.3,  68.62, 93.93,
                                 98.34, 84.9, 88.23, 91.01, 92.95, 94.15, 92.66, 92.09, 91.8,  91.69};
  double bytes = 32 * KiB;
  for (const double each : measured) {
    const std::string size = bytes < MiB   ? fmt::format("{} KiB", bytes / KiB)
                             : bytes < GiB ? fmt::format("{} MiB", bytes / MiB)
                                           : fmt::format("{} GiB", bytes / GiB);
    rows.push_back(all_reduce_row("4 nodes, " + size, each, bytes, 32, machine,
                                  bytes > 64 * MiB  ? 0.05
                                  : bytes < 2 * MiB ? 0.15
                                                    : 0.3));
    bytes *= 2;
  }
}

/// docs/results/machine-rates.md shows the same lines, of the sizes on 4 nodes every second one.
TEST(CollectiveSeconds, AreAsMeasuredAndAsDocumented) {
  std::vector<Row> rows;
  add_shipped(rows);
  add_plain(rows);
  add_copies(rows);
  add_sizes(rows);
  std::ifstream file(std::string(ECHELON_SOURCE_DIR) + "/docs/results/machine-rates.md");
  std::ostringstream document;
  document << file.rdbuf();
  double sum = 0;
  int num_sizes = 0;
  for (const Row& row : rows) {
    sum += std::abs(row.predicted / row.measured - 1);
    EXPECT_NEAR(row.predicted / row.measured, 1, row.tolerance) << row.what;
    if (row.what.starts_with("4 nodes, ") && num_sizes++ % 2 != 0) continue;
    EXPECT_THAT(document.str(),
                ::testing::HasSubstr(fmt::format("| {} | {} | {:.3g} |\n", row.what, row.measured, row.predicted)));
  }
  EXPECT_EQ(rows.size(), 39);
  EXPECT_LT(sum / static_cast<double>(rows.size()), 0.05);
}

constexpr CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::all_to_all, CommKind::broadcast};

class OnShipped : public ::testing::TestWithParam<const char*> {};

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
          EXPECT_GE(world_seconds(kind, bytes, num_ranks, *less), world_seconds(kind, bytes, num_ranks, machine))
              << name_of(kind) << " " << num_ranks;
}

INSTANTIATE_TEST_SUITE_P(Machines, OnShipped, ::testing::Values("v100", "a100-80", "h100", "b200"),
                         [](const auto& each) {
                           std::string name(each.param);
                           return name.substr(0, name.find('-'));
                         });

TEST(MeasuredSeconds, LieBetweenMeasuredSizesAndGroups) {
  NodeLink link;
  link.measured = {{Collective::all_reduce, 2, {1e3, 1e5}, {1e-6, 1e-5}},
                   {Collective::all_reduce, 4, {1e3, 1e5}, {3e-6, 3e-5}}};
  const auto seconds = [&](double bytes, int num_ranks) {
    return measured_seconds(link, Collective::all_reduce, bytes, num_ranks).value();
  };
  EXPECT_DOUBLE_EQ(seconds(1e3, 2), 1e-6);
  EXPECT_NEAR(seconds(1e4, 2), std::sqrt(1e-11), 1e-12);  // the middle of a straight line in logarithms
  EXPECT_DOUBLE_EQ(seconds(8, 2), 1e-6);
  EXPECT_DOUBLE_EQ(seconds(1e6, 2), 1e-4);
  EXPECT_DOUBLE_EQ(seconds(1e3, 3), 2e-6);
  EXPECT_DOUBLE_EQ(seconds(1e3, 8), 6e-6);
  EXPECT_EQ(measured_seconds(link, Collective::broadcast, 8, 2), std::nullopt);
}

TEST(MeasuredSeconds, StandInForTheModel) {
  MachineSpec machine = machine_of_slow_links();
  machine.nodes.front().link.measured = {{Collective::all_gather, 2, {40}, {7}}};
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::all_gather, 40, 2, machine), 7);
  EXPECT_DOUBLE_EQ(world_seconds(CommKind::all_reduce, 40, 2, machine), 5);
}

}  // namespace
}  // namespace echelon
