#include "blueprint/balanced_batch.h"

#include "blueprint/small_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace echelon {
namespace {

using ::testing::ElementsAre;

BatchLayout layout_of(int num_replicas, std::int64_t num_microbatches, std::int64_t rows) {
  RunConfig config = testing::small_config();
  config.parallelism.data_parallel_replicate_degree = num_replicas;
  config.training.micro_batch_size = rows;
  config.training.global_batch_size = num_replicas * num_microbatches * rows;
  return BatchLayout(config);
}

std::vector<std::int64_t> of_replicas(const BatchLayout& layout, const std::vector<std::int64_t>& pairs,
                                      const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(layout.num_replicas()));
  for (std::size_t place = 0; place < order.size(); ++place)
    sums[static_cast<std::size_t>(layout.place_of(static_cast<std::int64_t>(place)).replica)] +=
        pairs[static_cast<std::size_t>(order[place])];
  return sums;
}

// 9 and 8 open the replicas, 7 goes to that with 8, and 1 to the other one.
TEST(BalancedBatch, GivesTheLargestToTheLeastLoaded) {
  const BatchLayout layout = layout_of(2, 2, 1);
  const std::vector<std::int64_t> pairs = {1, 8, 9, 7};
  // By place: microbatch 0 of both replicas, then microbatch 1.
  EXPECT_THAT(balanced_order(layout, pairs), ElementsAre(2, 1, 0, 3));
  EXPECT_THAT(of_replicas(layout, pairs, balanced_order(layout, pairs)), ElementsAre(10, 15));
}

TEST(BalancedBatch, BalancesTheMicrobatchesOfAReplica) {
  const std::vector<std::int64_t> pairs = {10, 9, 1, 2};
  EXPECT_THAT(balanced_order(layout_of(1, 2, 2), pairs), ElementsAre(0, 2, 1, 3));  // 10 + 1, 9 + 2
}

TEST(BalancedBatch, IsAPermutationThatIsMoreEven) {
  std::mt19937 random(7);
  double before = 0, after = 0;
  constexpr int num_batches = 50;
  for (int batch = 0; batch < num_batches; ++batch) {
    const BatchLayout layout = layout_of(8, 4, 2);
    std::vector<std::int64_t> pairs(64), given(pairs.size());
    std::lognormal_distribution<double> lengths(7, 1);
    for (std::int64_t& each : pairs) each = static_cast<std::int64_t>(lengths(random));
    std::iota(given.begin(), given.end(), 0);
    std::vector<std::int64_t> order = balanced_order(layout, pairs);
    before += largest_over_mean(of_replicas(layout, pairs, given)) / num_batches;
    after += largest_over_mean(of_replicas(layout, pairs, order)) / num_batches;
    EXPECT_EQ(order, balanced_order(layout, pairs));
    std::ranges::sort(order);
    EXPECT_EQ(order, given);
  }
  EXPECT_GT(before, 1.5);
  EXPECT_LT(after, 1.1);
}

TEST(BalancedBatch, OfNoPairsIsEven) {
  EXPECT_EQ(largest_over_mean(std::vector<std::int64_t>{0, 0}), 1);
  EXPECT_EQ(largest_over_mean(std::vector<std::int64_t>{1, 3}), 1.5);
}

}  // namespace
}  // namespace echelon
