// Rankings over draws of uncertain rates.
#include "plan/search/draws.h"

#include "plan/search/search.h"
#include "plan/some_host.h"
#include "plan/text/text.h"
#include "predict/software/uncertainty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {
namespace {

PlanQuestion question() {
  return {.model = "gpt2-124m", .machine = "a100-40", .gpus = 16, .global_batch_size = 64, .seq_len = 512};
}

TEST(Draws, AreTheSameEachTimeAndWithinTheirSpread) {
  const MachineSpec machine = read_plan_request(question()).machine;
  EXPECT_EQ(drawn(machine, 3), drawn(machine, 3));
  EXPECT_FALSE(drawn(machine, 3) == drawn(machine, 4));
  const double spread = spread_of(&Calibration::network_share);
  EXPECT_GT(spread, spread_of(&Calibration::matmul_share));
  double sum = 0;
  constexpr int num_draws = 200;
  for (int draw = 0; draw < num_draws; ++draw) {
    const double change = std::log(drawn(machine, draw).network.efficiency / machine.network.efficiency);
    EXPECT_LE(std::abs(change), std::sqrt(3.0) * spread * (1 + 1e-12));
    EXPECT_LE(drawn(machine, draw).network.efficiency, 1);
    sum += change / spread;
  }
  EXPECT_LT(std::abs(sum / num_draws), 0.3);
}

// By timing each plan on each machine once more, and sorting.
TEST(Draws, CountWhoWinsAndWhoIsBestInTheWorst) {
  PlanQuestion asked = question();
  asked.top = 3;
  const PlanRequest request = read_plan_request(asked);
  const PlanResult result = find_plans(request);
  ASSERT_EQ(result.plans.size(), 3U);
  const PlanDraws draws = draws_of(result.plans, request).value();
  const int num_draws = std::accumulate(draws.wins.begin(), draws.wins.end(), 0);
  EXPECT_GE(num_draws, 8);
  std::vector<int> wins(3, 0);
  std::vector<double> longest(3, 0);
  for (int draw = 0; draw < num_draws; ++draw) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < 3; ++i) {
      order.emplace_back(simulate(Blueprint(result.plans[i].config), drawn(request.machine, draw)).step_seconds, i);
      longest[i] = std::max(longest[i], order.back().first);
    }
    std::sort(order.begin(), order.end());
    ++wins[order.front().second];
  }
  EXPECT_EQ(draws.wins, wins);
  EXPECT_EQ(draws.longest_seconds, longest);
  for (const double seconds : longest) EXPECT_LE(longest[draws.safest], seconds);
}

TEST(Draws, SayWhichRowIsSafer) {
  EXPECT_THAT(to_text(PlanDraws{.wins = {7, 5}, .longest_seconds = {2.5, 1.5}, .safest = 1}),
              testing::AllOf(testing::HasSubstr("fastest in 7 of 12 draws of the rates, row 2 in 5; "),
                             testing::HasSubstr("row 2 is the best in the "
                                                "worst of them: 1.5000 s")));
  EXPECT_THAT(to_text(PlanDraws{.wins = {12, 0}, .longest_seconds = {1, 2}}),
              testing::EndsWith("fastest in 12 of 12 draws of the rates; the first is the best in the worst of them"));
}

TEST(Draws, AreOfBorrowedRatesAlone) {
  PlanQuestion asked = question();
  asked.top = 2;
  const PlanRequest request = read_plan_request(asked);
  const std::vector<Plan> plans = find_plans(request).plans;
  EXPECT_TRUE(draws_of(plans, request));
  EXPECT_FALSE(draws_of({plans.front()}, request));
  asked.profile = "ideal";
  EXPECT_FALSE(draws_of(plans, read_plan_request(asked)));
  EXPECT_FALSE(has_borrowed_rates(software_profile("echelon"), some_host()));
}

}  // namespace
}  // namespace echelon
