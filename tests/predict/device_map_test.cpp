// Where ranks and groups lie: arithmetic on strides against counting.
#include "predict/machine/device_map.h"

#include "base/error.h"
#include "spec/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace echelon {
namespace {

using ::testing::HasSubstr;

MachineSpec cluster(std::vector<std::pair<std::int64_t, std::int64_t>> counts_and_devices) {
  MachineSpec machine;
  machine.name = "cluster";
  for (const auto& [count, num_devices] : counts_and_devices) {
    NodeSpec node;
    node.count = count;
    node.num_devices = num_devices;
    node.num_nics = num_devices;
    node.nic_bandwidth = 1;
    node.link.bandwidth = 10.0 + static_cast<double>(machine.nodes.size());
    machine.nodes.push_back(node);
  }
  return machine;
}

MeshShape mesh_of(int replicate, int pp, int shard, int tp) {
  return MeshShape({{Axis::dp_replicate, replicate}, {Axis::pp, pp}, {Axis::dp_shard, shard}, {Axis::tp, tp}});
}

TEST(DeviceMap, RanksFillNodesOfEveryKindInOrder) {
  const MachineSpec machine = cluster({{2, 4}, {0, 8}});
  const DeviceMap devices(mesh_of(1, 1, 24, 1), machine);
  EXPECT_EQ(devices.node_of(0), 0);
  EXPECT_EQ(devices.node_of(7), 1);
  EXPECT_EQ(devices.node_of(8), 2);
  EXPECT_EQ(devices.node_of(23), 3);
  EXPECT_EQ(devices.kind_of(7).num_devices, 4);
  EXPECT_EQ(devices.kind_of(8).num_devices, 8);
}

/// Data-parallel ranks as neighbours, tensor-parallel ones far apart.
TEST(DeviceMap, TakesAnotherOrderOfAxes) {
  const MachineSpec machine = cluster({{0, 4}});
  const DeviceMap devices(MeshShape({{Axis::dp_shard, 4}, {Axis::tp, 2}}, parse_axis_order("order", {"dp-tp"})),
                          machine);
  EXPECT_EQ(devices.placement_of(shard_group, 0).num_nodes, 1);
  EXPECT_EQ(devices.placement_of(tp_group, 0).num_nodes, 2);
  EXPECT_DOUBLE_EQ(devices.placement_of(tp_group, 0).cards_bandwidth, 1);
}

TEST(DeviceMap, KnowsLeavesAndRails) {
  MachineSpec machine = cluster({{0, 8}});
  machine.nodes.front().num_nics = 4;
  machine.network.nodes_per_leaf = 2;
  const DeviceMap devices(mesh_of(1, 1, 64, 1), machine);
  EXPECT_EQ(devices.leaf_of(15), 0);
  EXPECT_EQ(devices.leaf_of(16), 1);
  EXPECT_EQ(devices.rail_of(1), 0);
  EXPECT_EQ(devices.rail_of(10), 1);
  EXPECT_EQ(devices.rail_of(63), 3);
}

TEST(DeviceMap, RefusesMoreRanksThanDevicesAndNodesWithoutCards) {
  const auto error_of = [](const MachineSpec& machine) -> std::string {
    try {
      (void)DeviceMap(mesh_of(1, 1, 16, 1), machine);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(cluster({{1, 8}})),
              HasSubstr("the layout has 16 ranks, but the machine 'cluster' has 8 devices (use 8)"));
  MachineSpec alone = cluster({{0, 8}});
  alone.nodes.front().num_nics = 0;
  EXPECT_THAT(error_of(alone), HasSubstr("8 devices on a node and no cards between nodes (num_nics = 0) (use 8)"));
  alone.nodes.front().link.kind = LinkKind::shared_memory;
  EXPECT_EQ(error_of(alone), "");  // threads of one host are as many as are asked for
}

/// Counted one by one.
void expect_counted(const DeviceMap& devices, const Group& group, int rank) {
  std::map<int, int> on_node;
  std::set<int> leaves;
  const std::vector<int> ranks = devices.mesh().ranks_of(group, rank);
  for (const int each : ranks) {
    ++on_node[devices.node_of(each)];
    leaves.insert(devices.leaf_of(each));
  }
  int most = 0;
  for (const auto& [node, count] : on_node) most = std::max(most, count);
  const GroupPlacement placement = devices.placement_of(group, rank);
  EXPECT_EQ(placement.num_ranks, ranks.size());
  EXPECT_EQ(placement.num_nodes, on_node.size()) << name_of(group) << " of " << rank;
  EXPECT_EQ(placement.ranks_per_node, most) << name_of(group) << " of " << rank;
  EXPECT_EQ(placement.num_leaves, leaves.size()) << name_of(group) << " of " << rank;
}

TEST(GroupPlacement, IsWhatCountingFinds) {
  std::mt19937 random(1);
  const auto one_of = [&](std::vector<int> choices) { return choices[random() % choices.size()]; };
  const Group groups[] = {tp_group, pipeline_group, tied_group, shard_group, replicate_group, data_group, world_group};
  for (int i = 0; i < 300; ++i) {
    std::array axes = {Axis::tp, Axis::dp_shard, Axis::pp, Axis::dp_replicate};
    if (random() % 2 == 0) std::shuffle(axes.begin(), axes.end(), random);
    const MeshShape mesh({{Axis::dp_replicate, one_of({1, 2, 3})},
                          {Axis::pp, one_of({1, 2, 4, 5})},
                          {Axis::dp_shard, one_of({1, 2, 4, 6})},
                          {Axis::tp, one_of({1, 2, 3, 4, 8})}},
                         AxisOrder(axes));
    MachineSpec machine =
        random() % 3 == 0 ? cluster({{one_of({1, 2}), 4}, {0, 8}}) : cluster({{0, one_of({1, 4, 6, 8, 16})}});
    machine.network.nodes_per_leaf = one_of({0, 1, 2, 3});
    const DeviceMap devices(mesh, machine);
    for (const Group& group : groups) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(mesh.num_ranks()));
      if (!mesh.ranks_of(group, rank).empty()) expect_counted(devices, group, rank);
    }
  }
}

TEST(GroupPlacement, OfAMixedGroupHasTheSlowestLinkAndCards) {
  MachineSpec machine = cluster({{1, 8}, {0, 8}});
  machine.nodes.back().nic_bandwidth = 0.5;
  const DeviceMap devices(mesh_of(1, 1, 4, 8), machine);
  const GroupPlacement placement = devices.placement_of(shard_group, 0);
  EXPECT_EQ(placement.link->bandwidth, 10);
  EXPECT_DOUBLE_EQ(placement.cards_bandwidth, 0.5);
}

/// Eight data-parallel groups, one per tensor rank, share a node's cards; without tensor parallelism the one group has
/// all of them.
TEST(GroupPlacement, SharesTheCardsOfANode) {
  MachineSpec machine = cluster({{0, 8}});
  machine.nodes.front().num_nics = 4;
  EXPECT_DOUBLE_EQ(DeviceMap(mesh_of(1, 1, 4, 8), machine).placement_of(shard_group, 0).cards_bandwidth, 4.0 / 8);
  EXPECT_DOUBLE_EQ(DeviceMap(mesh_of(1, 1, 32, 1), machine).placement_of(shard_group, 0).cards_bandwidth, 4);
  EXPECT_DOUBLE_EQ(DeviceMap(mesh_of(1, 1, 16, 2), machine).placement_of(shard_group, 0).cards_bandwidth, 2);
}

TEST(GroupPlacement, OfAPairCountsWhoSendsBesideIt) {
  MachineSpec machine = cluster({{0, 8}});
  machine.nodes.front().num_nics = 4;
  const DeviceMap devices(mesh_of(1, 2, 1, 8), machine);
  EXPECT_DOUBLE_EQ(devices.placement_of_pair(0, 8).cards_bandwidth, 4.0 / 8);  // every rank of the node sends
  EXPECT_EQ(devices.placement_of_pair(0, 7).num_nodes, 1);
  const DeviceMap stages(mesh_of(1, 8, 1, 2), machine);
  EXPECT_DOUBLE_EQ(stages.placement_of_pair(6, 8).cards_bandwidth, 1);  // two do: the last stage of the node
}

TEST(GroupPlacement, OfAPairOnTwoRailsGoesAboveTheLeaf) {
  MachineSpec machine = cluster({{0, 8}});
  machine.network.nodes_per_leaf = 4;
  EXPECT_EQ(DeviceMap(mesh_of(1, 2, 1, 8), machine).placement_of_pair(0, 9).num_leaves, 1);
  machine.network.rail_optimized = true;
  const DeviceMap devices(mesh_of(1, 2, 1, 8), machine);
  EXPECT_EQ(devices.placement_of_pair(0, 8).num_leaves, 1);
  EXPECT_EQ(devices.placement_of_pair(0, 9).num_leaves, 2);
}

}  // namespace
}  // namespace echelon
