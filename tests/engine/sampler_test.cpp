#include "engine/generation/sampler.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

namespace echelon {
namespace {

const std::array<double, 5> logits = {std::log(0.1), std::log(0.4), std::log(0.05), std::log(0.25), std::log(0.2)};

std::map<std::int32_t, double> frequencies(const SamplingOptions& options) {
  Sampler sampler(options);
  std::map<std::int32_t, double> shares;
  constexpr int draws = 40000;
  for (int i = 0; i < draws; ++i) shares[sampler.draw(logits)] += 1.0 / draws;
  return shares;
}

TEST(Sampler, DrawsWithTheSoftmaxProbabilities) {
  const auto shares = frequencies({});
  const std::array<double, 5> expected = {0.1, 0.4, 0.05, 0.25, 0.2};
  for (std::int32_t token = 0; token < 5; ++token)
    EXPECT_NEAR(shares.at(token), expected[static_cast<std::size_t>(token)], 0.01);
}

TEST(Sampler, TemperatureSharpens) {
  // p^2, normalised: the temperature 1/2 doubles the logits.
  const double total = 0.01 + 0.16 + 0.0025 + 0.0625 + 0.04;
  EXPECT_NEAR(frequencies({.temperature = 0.5}).at(1), 0.16 / total, 0.01);
  EXPECT_EQ(frequencies({.temperature = 0}).size(), 1U);
  EXPECT_EQ(frequencies({.temperature = 0}).begin()->first, 1);
}

TEST(Sampler, TopKAndTopPLeaveTheLikeliest) {
  const auto two = frequencies({.top_k = 2});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 0.4 / 0.65, 0.01);
  EXPECT_NEAR(two.at(3), 0.25 / 0.65, 0.01);
  // 0.4 + 0.25 < 0.7 <= 0.4 + 0.25 + 0.2
  const auto nucleus = frequencies({.top_p = 0.7});
  ASSERT_EQ(nucleus.size(), 3U);
  EXPECT_NEAR(nucleus.at(4), 0.2 / 0.85, 0.01);
}

TEST(Sampler, EqualSeedsDrawEqualTokens) {
  Sampler a({.seed = 7}), b({.seed = 7});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.draw(logits), b.draw(logits));
}

TEST(Sampler, RefusesWhatIsNoDistribution) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace echelon
