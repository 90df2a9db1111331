#include "blueprint/batch_layout.h"

#include "blueprint/small_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

using ::testing::ElementsAre;

struct Degrees {
  int replicate = 1, shard = 1, pp = 1, tp = 1, cp = 1;
};

RunConfig config_of(const Degrees& degrees, std::int64_t num_microbatches, std::int64_t micro_batch_size) {
  RunConfig config = testing::small_config();
  ParallelConfig& p = config.parallelism;
  p.data_parallel_replicate_degree = degrees.replicate;
  p.data_parallel_shard_degree = degrees.shard;
  p.pipeline_parallel_degree = degrees.pp;
  p.tensor_parallel_degree = degrees.tp;
  p.context_parallel_degree = degrees.cp;
  config.training.micro_batch_size = micro_batch_size;
  config.training.global_batch_size = num_microbatches * config.data_parallel_degree() * micro_batch_size;
  return config;
}

const Degrees all_degrees[] = {
    {},
    {.replicate = 3},
    {.shard = 4},
    {.replicate = 2, .shard = 3},
    {.shard = 2, .pp = 3},
    {.replicate = 2, .shard = 2, .pp = 2, .tp = 2},
    {.replicate = 2, .shard = 2, .pp = 2, .tp = 2, .cp = 3},
};

// Two replicas, each with one of the two rows of every microbatch: 0 1 | 2 3 is the first microbatch.
TEST(BatchLayout, NeighbouringRowsAreOfOneReplica) {
  const BatchLayout layout(config_of({.replicate = 2}, 2, 2));
  EXPECT_THAT(layout.sequences_of(0, 0), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(layout.sequences_of(1, 0), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(layout.sequences_of(1, 24), ElementsAre(26, 27, 30, 31));
  EXPECT_EQ(layout.place_of(5), (BatchPlace{.replica = 0, .microbatch = 1, .row = 1}));
}

// By the ranks that hold one copy of the model together, and by no others.
TEST(BatchLayout, EverySequenceOfTheBatchIsReadOnce) {
  for (const Degrees& degrees : all_degrees)
    for (const std::int64_t num_microbatches : {1, 2, 5})
      for (const std::int64_t rows : {1, 3})
        for (const std::int64_t batch : {0, 7}) {
          const RunConfig config = config_of(degrees, num_microbatches, rows);
          const BatchLayout layout(config);
          const std::int64_t size = config.training.global_batch_size;
          std::map<std::int64_t, int> num_reads;
          std::map<std::int64_t, int> replica_of;
          for (int rank = 0; rank < config.mesh_shape().num_ranks(); ++rank)
            for (const std::int64_t sequence : layout.sequences_of(rank, batch * size)) {
              ++num_reads[sequence];
              const int replica = replica_of.try_emplace(sequence, layout.replica_of(rank)).first->second;
              EXPECT_EQ(replica, layout.replica_of(rank)) << "a sequence of two replicas";
            }
          ASSERT_EQ(std::ssize(num_reads), size);
          EXPECT_EQ(num_reads.begin()->first, batch * size);
          EXPECT_EQ(num_reads.rbegin()->first, (batch + 1) * size - 1);
          for (const auto& [sequence, count] : num_reads)
            EXPECT_EQ(count, degrees.pp * degrees.tp * degrees.cp) << sequence;
        }
}

TEST(BatchLayout, ASequenceHasOnePlace) {
  for (const Degrees& degrees : all_degrees) {
    const RunConfig config = config_of(degrees, 4, 3);
    const BatchLayout layout(config);
    const std::int64_t size = config.training.global_batch_size;
    for (std::int64_t sequence = 0; sequence < size; ++sequence) {
      const BatchPlace place = layout.place_of(sequence);
      EXPECT_EQ(layout.sequence_at(place), sequence);
      EXPECT_LT(place.replica, layout.num_replicas());
      EXPECT_LT(place.microbatch, layout.num_microbatches());
      EXPECT_LT(place.row, 3);
    }
  }
}

TEST(BatchLayout, AReplicaHasTheCoordinatesOfItsRanks) {
  for (const Degrees& degrees : all_degrees) {
    const RunConfig config = config_of(degrees, 2, 1);
    const BatchLayout layout(config);
    const MeshShape mesh = config.mesh_shape();
    for (int rank = 0; rank < mesh.num_ranks(); ++rank)
      for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard})
        EXPECT_EQ(layout.coordinate_of(layout.replica_of(rank), axis), mesh.coordinate(rank, axis));
  }
}

}  // namespace
}  // namespace echelon
