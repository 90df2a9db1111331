#include "spec/mesh_shape.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// cluster 1, dp_replicate 2, pp 2, dp_shard 3, cp 1, tp 4: 48 ranks
MeshShape example_mesh() {
  return MeshShape({{Axis::dp_replicate, 2}, {Axis::pp, 2}, {Axis::dp_shard, 3}, {Axis::tp, 4}});
}

TEST(MeshShape, TensorParallelIsInnermostAndClusterOutermost) {
  const MeshShape mesh = example_mesh();
  EXPECT_EQ(mesh.num_ranks(), 48);
  EXPECT_EQ(mesh.coordinates_of(1), (Coordinates{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(mesh.coordinates_of(4), (Coordinates{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(mesh.coordinates_of(12), (Coordinates{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(mesh.coordinates_of(24), (Coordinates{0, 1, 0, 0, 0, 0}));
  for (int rank = 0; rank < 48; ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinates_of(rank)), rank);
}

TEST(MeshShape, GroupsAreTheRanksThatDifferInTheirAxesOnly) {
  const MeshShape mesh = example_mesh();
  const AxisSet sets[] = {{}, {Axis::tp}, {Axis::pp}, data_axes, {Axis::pp, Axis::tp}, step_axes, world_axes};
  for (const AxisSet axes : sets) {
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      std::vector<int> expected;  // by the definition, over all ranks
      for (int other = 0; other < mesh.num_ranks(); ++other) {
        bool same = true;
        for (int i = 0; i < num_axes; ++i)
          if (!axes.contains(static_cast<Axis>(i)))
            same = same && mesh.coordinate(rank, static_cast<Axis>(i)) == mesh.coordinate(other, static_cast<Axis>(i));
        if (same) expected.push_back(other);
      }
      EXPECT_EQ(mesh.ranks_of({.axes = axes}, rank), expected);
      EXPECT_EQ(mesh.group_size({.axes = axes}, rank), static_cast<int>(expected.size()));
    }
  }
}

// The groups that Megatron-LM's parallel_state.py lists for 16 devices with two tensor-parallel and four pipeline
// ranks, by its order tp-dp-pp.
TEST(MeshShape, MegatronsOrderGivesItsGroups) {
  using enum Axis;
  const MeshShape mesh({{Axis::pp, 4}, {Axis::dp_shard, 2}, {Axis::tp, 2}}, parse_axis_order("order", {"tp-dp-pp"}));
  EXPECT_THAT(mesh.ranks_of({{tp}}, 9), ElementsAre(8, 9));
  EXPECT_THAT(mesh.ranks_of({data_axes}, 7), ElementsAre(5, 7));
  EXPECT_THAT(mesh.ranks_of({{pp}}, 6), ElementsAre(2, 6, 10, 14));
}

// In every order the ranks of a group have one sequence, and a rank's id is linear in its coordinates.
TEST(MeshShape, AnOrderMovesRanksAndKeepsTheirPlacesInGroups) {
  const MeshShape plain({{Axis::dp_replicate, 2}, {Axis::pp, 2}, {Axis::dp_shard, 3}, {Axis::tp, 2}});
  for (const char* order : {"tp-dp-pp", "pp-dp_replicate-tp-dp_shard", "dp-pp-tp", "dp_replicate-tp-pp-dp_shard"}) {
    const MeshShape mesh({{Axis::dp_replicate, 2}, {Axis::pp, 2}, {Axis::dp_shard, 3}, {Axis::tp, 2}},
                         parse_axis_order("order", {order}));
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const Coordinates at = mesh.coordinates_of(rank);
      EXPECT_EQ(mesh.rank_of(at), rank);
      int linear = 0;
      for (int i = 0; i < num_axes; ++i) linear += mesh.stride(static_cast<Axis>(i)) * at[static_cast<std::size_t>(i)];
      EXPECT_EQ(linear, rank);
      for (const AxisSet axes : {AxisSet{Axis::tp}, data_axes, AxisSet{Axis::pp, Axis::dp_shard}, world_axes}) {
        std::vector<Coordinates> members, expected;
        for (const int each : mesh.ranks_of({axes}, rank)) members.push_back(mesh.coordinates_of(each));
        for (const int each : plain.ranks_of({axes}, plain.rank_of(at))) expected.push_back(plain.coordinates_of(each));
        EXPECT_EQ(members, expected) << order << " " << rank;
      }
    }
  }
}

TEST(MeshShape, EndsAreTheFirstAndTheLastOnly) {
  const MeshShape mesh({{Axis::pp, 4}, {Axis::tp, 2}});
  const Group ends{.axes = {Axis::pp}, .part = Group::Part::ends};
  EXPECT_THAT(mesh.ranks_of(ends, 1), ElementsAre(1, 7));
  EXPECT_THAT(mesh.ranks_of(ends, 7), ElementsAre(1, 7));
  EXPECT_THAT(mesh.ranks_of(ends, 3), IsEmpty());
  EXPECT_THAT(MeshShape().ranks_of(ends, 0), ElementsAre(0));
  EXPECT_THAT(MeshShape({{Axis::pp, 2}}).ranks_of(ends, 1), ElementsAre(0, 1));
}

TEST(MeshShape, BlocksAreConsecutive) {
  const MeshShape mesh({{Axis::dp_shard, 2}, {Axis::tp, 4}});
  EXPECT_THAT(mesh.ranks_of({.axes = {Axis::tp}, .part = Group::Part::block, .block = 2}, 7), ElementsAre(6, 7));
  EXPECT_THAT(mesh.ranks_of({.axes = {Axis::tp}, .part = Group::Part::block, .block = 2}, 4), ElementsAre(4, 5));
  EXPECT_THROW((void)mesh.ranks_of({.axes = {Axis::tp}, .part = Group::Part::block, .block = 3}, 0), Error);
  EXPECT_THROW((void)mesh.ranks_of({.axes = {Axis::tp}, .part = Group::Part::block, .block = 0}, 0), Error);
}

// The complement of blocks: one rank of each.
TEST(MeshShape, StridedRanksAreAtOnePlaceOfTheirBlocks) {
  const MeshShape mesh({{Axis::dp_shard, 6}, {Axis::tp, 2}});
  const Group strided = {.axes = {Axis::dp_shard}, .part = Group::Part::strided, .block = 3};
  EXPECT_THAT(mesh.ranks_of(strided, 0), ElementsAre(0, 6));
  EXPECT_THAT(mesh.ranks_of(strided, 5), ElementsAre(5, 11));
  EXPECT_THAT(mesh.ranks_of({.axes = {Axis::dp_shard}, .part = Group::Part::strided, .block = 1}, 3),
              ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THROW((void)mesh.ranks_of({.axes = {Axis::dp_shard}, .part = Group::Part::strided, .block = 4}, 0), Error);
}

// One rank of each small block of a large one.
TEST(MeshShape, StridedRanksMayBeWithinLargerBlocks) {
  const MeshShape mesh({{Axis::dp_shard, 4}, {Axis::tp, 2}});
  const Group across = {{Axis::dp_shard, Axis::tp}, Group::Part::strided, 2, 4};
  EXPECT_THAT(mesh.ranks_of(across, 0), ElementsAre(0, 2));
  EXPECT_THAT(mesh.ranks_of(across, 3), ElementsAre(1, 3));
  EXPECT_THAT(mesh.ranks_of(across, 4), ElementsAre(4, 6));
  EXPECT_THAT(mesh.ranks_of(across, 7), ElementsAre(5, 7));
  EXPECT_EQ(name_of(across), "dp_shard+tp/4%2");
}

TEST(MeshShape, ARanksPlaceIsItsPositionAmongTheRanksOfAGroup) {
  const MeshShape mesh({{Axis::cluster, 2}, {Axis::dp_replicate, 2}, {Axis::pp, 3}, {Axis::dp_shard, 2}, {Axis::tp, 4}},
                       parse_axis_order("order", {"dp_shard-tp-pp"}));
  using Part = Group::Part;
  for (const Group& group :
       {Group{step_axes}, Group{world_axes}, Group{data_axes}, Group{}, Group{{Axis::pp}, Part::ends},
        Group{{Axis::tp}, Part::block, 2}, Group{{Axis::tp}, Part::strided, 2}, Group{data_axes, Part::block, 2},
        Group{data_axes, Part::strided, 2}, Group{data_axes, Part::strided, 1, 2}})
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const std::vector<int> ranks = mesh.ranks_of(group, rank);
      const auto found = std::ranges::find(ranks, rank);
      const GroupPlace expected =
          ranks.empty() ? GroupPlace{}
                        : GroupPlace{static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size())};
      EXPECT_EQ(mesh.place_in(group, rank), expected) << name_of(group) << " " << rank;
      EXPECT_TRUE(ranks.empty() || found != ranks.end());
    }
}

// The ranks of one cluster take a step together.
TEST(MeshShape, TheRanksOfAStepDoNotSpanClusters) {
  const MeshShape mesh({{Axis::cluster, 2}, {Axis::dp_shard, 2}});
  EXPECT_THAT(mesh.ranks_of({step_axes}, 3), ElementsAre(2, 3));
  EXPECT_THAT(mesh.ranks_of({world_axes}, 3), ElementsAre(0, 1, 2, 3));
}

TEST(MeshShape, NamesOfGroups) {
  EXPECT_EQ(name_of(Group{.axes = {Axis::dp_shard, Axis::cp}}), "dp_shard+cp");
  EXPECT_EQ(name_of(Group{.axes = {Axis::pp}, .part = Group::Part::ends}), "pp ends");
  EXPECT_EQ(name_of(Group{.axes = {Axis::tp}, .part = Group::Part::block, .block = 2}), "tp/2");
  EXPECT_EQ(name_of(Group{.axes = {Axis::tp}, .part = Group::Part::strided, .block = 2}), "tp%2");
  EXPECT_EQ(name_of(Group{.axes = world_axes}), "world");
  EXPECT_EQ(name_of(Group{.axes = step_axes}), "world");
  EXPECT_EQ(name_of(Group{.axes = data_axes}), "dp_replicate+dp_shard+cp");
}

TEST(MeshShape, RefusesImpossibleDegrees) {
  EXPECT_THROW(MeshShape({{Axis::dp_replicate, 0}}), Error);
  EXPECT_THROW(MeshShape({{Axis::dp_replicate, 1 << 20}, {Axis::pp, 1 << 20}}), Error);
}

}  // namespace
}  // namespace echelon
