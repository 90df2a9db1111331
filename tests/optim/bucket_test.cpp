// Which parameters share a bucket, and how a bucket is sharded: by the groups of its parameters.
#include "optim/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using testing::ElementsAre;

Param param_of(std::int64_t size, const GradientGroups& groups = {}) {
  Param param;
  param.slice = TensorSlice({size});
  param.groups = groups;
  return param;
}

std::vector<std::int64_t> counts_of(const Bucket& bucket) {
  std::vector<std::int64_t> counts;
  for (const Segment& segment : bucket.segments) counts.push_back(segment.count);
  return counts;
}

// dp_replicate 2, dp_shard 4, tp 2.
const MeshShape mesh({{Axis::dp_replicate, 2}, {Axis::dp_shard, 4}, {Axis::tp, 2}});
const Group expert_group = {shard_group.axes, Group::Part::strided, 2};

TEST(Buckets, HoldTheParametersOfEqualGroups) {
  Param a = param_of(20), norm = param_of(3, {.partial = tp_group}), b = param_of(5),
        expert = param_of(7, {.shard = expert_group}), bias = param_of(2, {.partial = tp_group});
  const std::vector<Bucket> buckets = make_buckets({&a, &norm, &b, &expert, &bias}, mesh, 0, true);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_THAT(counts_of(buckets[0]), ElementsAre(20, 5));
  EXPECT_THAT(counts_of(buckets[1]), ElementsAre(3, 2));
  EXPECT_THAT(counts_of(buckets[2]), ElementsAre(7));
  EXPECT_EQ(buckets[1].groups, norm.groups);
  EXPECT_EQ(buckets[2].groups, expert.groups);
}

// Every element of a bucket has one owner in each group of ranks that share it, and one of its copies counts.
TEST(Buckets, AreShardedOverTheirOwnGroups) {
  Param dense = param_of(21), expert = param_of(21, {.shard = expert_group});
  for (const bool shards : {false, true}) {
    std::vector<int> num_shards;
    std::vector<std::int64_t> num_counted = {0, 0};
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const std::vector<Bucket> buckets = make_buckets({&dense, &expert}, mesh, rank, shards);
      num_shards = {buckets[0].shard.size, buckets[1].shard.size};
      for (std::size_t b = 0; b < 2; ++b) {
        EXPECT_EQ(buckets[b].shard.index, shards ? mesh.place_in(buckets[b].groups.shard, rank).index : 0);
        EXPECT_EQ(buckets[b].owned().count * buckets[b].shard.size, buckets[b].num_elements);
        if (buckets[b].is_first_copy && mesh.coordinate(rank, Axis::tp) == 0)
          num_counted[b] += buckets[b].num_parameters_in(buckets[b].owned());
      }
    }
    EXPECT_THAT(num_shards, shards ? ElementsAre(4, 2) : ElementsAre(1, 1));
    EXPECT_THAT(num_counted, ElementsAre(21, 2 * 21));  // two ranks of four hold different experts
  }
}

}  // namespace
}  // namespace echelon
