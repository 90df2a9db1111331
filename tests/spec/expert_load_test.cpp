// Shares of ranks that divide experts, against their closed forms.
#include "spec/config/expert_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace echelon {
namespace {

MixtureSpec mixture_of(std::int64_t num_experts, std::int64_t chosen) {
  MixtureSpec mixture;
  mixture.num_experts = num_experts;
  mixture.num_experts_per_tok = chosen;
  return mixture;
}

void expect_near(const std::vector<double>& shares, const std::vector<double>& expected) {
  ASSERT_EQ(shares.size(), expected.size());
  for (std::size_t rank = 0; rank < shares.size(); ++rank) EXPECT_NEAR(shares[rank], expected[rank], 1e-12) << rank;
}

TEST(ExpertLoad, FollowsZipfWithAnExpertOnEachRank) {
  const double sum = 1 + 0.5 + 1.0 / 3 + 0.25;
  expect_near(shares_of_ranks({.zipf = 1}, mixture_of(4, 1), 4), {1 / sum, 0.5 / sum, 1 / (3 * sum), 0.25 / sum});
  expect_near(shares_of_ranks({}, mixture_of(4, 1), 2), {0.5, 0.5});
}

// With two choices a token's first expert takes at most half of the rows; the others share the rest as before.
TEST(ExpertLoad, ChoosesNoExpertTwice) {
  const double others = std::pow(2, -3.0) + std::pow(3, -3.0) + std::pow(4, -3.0);
  expect_near(
      shares_of_ranks({.zipf = 3}, mixture_of(4, 2), 4),
      {0.5, 0.5 * std::pow(2, -3.0) / others, 0.5 * std::pow(3, -3.0) / others, 0.5 * std::pow(4, -3.0) / others});
  // 0.98 of the rows would go to the first expert, and 0.9 of the rest to the second: both take a third.
  const std::vector<double> three = shares_of_ranks({.zipf = 6}, mixture_of(16, 3), 16);
  EXPECT_NEAR(three[0], 1.0 / 3, 1e-12);
  EXPECT_NEAR(three[1], 1.0 / 3, 1e-12);
  EXPECT_LT(three[2], 1.0 / 3 + 1e-12);
}

TEST(ExpertLoad, TakesTheMeanOfMeasuredLayers) {
  const ExpertLoad measured = {.rows_of_layers = {{3, 1, 0, 4}, {0, 1, 5, 2}}};
  // {4, 4} of 8 rows and {1, 7}: the most loaded ranks have 1/2 and 7/8.
  expect_near(shares_of_ranks(measured, mixture_of(4, 1), 2), {(0.5 + 0.875) / 2, (0.5 + 0.125) / 2});
}

TEST(ExpertLoad, SumsToOneAndFalls) {
  for (const double zipf : {0.0, 0.5, 1.2, 4.0})
    for (const int ranks : {1, 2, 8, 64}) {
      const std::vector<double> shares = shares_of_ranks({.zipf = zipf}, mixture_of(64, 8), ranks);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
      EXPECT_TRUE(std::ranges::is_sorted(shares, std::greater()));
      EXPECT_LE(shares.front(), 64.0 / ranks / 8 + 1e-12);
    }
}

}  // namespace
}  // namespace echelon
