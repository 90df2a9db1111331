#include "train/time_steps.h"

#include "blueprint/small_config.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

TEST(TimeSteps, GivesTheSecondsOfEachAndMoreForLongerOnes) {
  RunConfig config = testing::small_config();
  config.parallelism.tensor_parallel_degree = 2;
  const std::vector<double> few = time_steps(config, 5);
  ASSERT_EQ(few.size(), 5U);
  config.training.global_batch_size *= 8;
  const std::vector<double> many = time_steps(config, 3);
  ASSERT_EQ(many.size(), 3U);
  EXPECT_GT(*std::min_element(few.begin(), few.end()), 0);
  EXPECT_GT(*std::min_element(many.begin(), many.end()), *std::min_element(few.begin(), few.end()));
}

}  // namespace
}  // namespace echelon
