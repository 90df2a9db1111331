// echelon plan --tokens and --hours from the command line.
#include "cli/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

// 8 sequences of 64 tokens are a step, so that 1 M tokens are 1,954 steps.
TEST(Plan, TokensHaveDaysAndAPrice) {
  const Json plan = best_plan({"--machine=h100", "--gpus=2", "--tokens=1M", "--price=3"});
  const double days = plan["predicted_seconds"].get<double>() * 1954 / 86400;
  EXPECT_EQ(plan["training"]["steps"], 1954);
  EXPECT_DOUBLE_EQ(plan["training"]["days"], days);
  EXPECT_NEAR(plan["training"]["price"].get<double>() / (days * 24 * 2 * 3), 1, 1e-9);
  const std::string text =
      planned({"--machine=h100", "--gpus=2", "--tokens=1M", "--mtbf=9", "--checkpoint-seconds=1"}).out;
  EXPECT_THAT(text, HasSubstr("1 million tokens are 1,954 steps"));
  EXPECT_THAT(text, HasSubstr("the job fails every 4.5 hours"));
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--tokens=much"}).err, HasSubstr("is not a number of tokens"));
}

TEST(Plan, ASweepsDaysSayWhatFailuresCost) {
  const std::vector<std::string> asked = {"--machine=h100", "--gpus=1..2", "--tokens=1B", "--mtbf=100",
                                          "--checkpoint-seconds=1"};
  const Json points = planned_json(asked)["scaling"];
  const double of_two = points[1]["training"]["goodput"];
  EXPECT_LT(of_two, points[0]["training"]["goodput"]);
  EXPECT_THAT(planned(asked).out, HasSubstr(fmt::format(", {:.1f} % on 2 is training", 100 * of_two)));
}

// A step of the plan is of 512 tokens; so many whole steps are in an hour.
TEST(Plan, HoursHaveTokens) {
  const Json plan = best_plan({"--machine=h100", "--gpus=2", "--hours=1", "--price=3"});
  const double steps = std::floor(3600 / plan["predicted_seconds"].get<double>());
  EXPECT_EQ(plan["training"]["steps"], steps);
  EXPECT_EQ(plan["training"]["tokens"], steps * 512);
  EXPECT_NEAR(plan["training"]["price"].get<double>(), 2 * 3, 0.001);
  EXPECT_THAT(planned({"--machine=h100", "--gpus=2", "--hours=1"}).out, HasSubstr("1 hours are"));
}

// Of 1, 2 and 4 devices those whose days are within the hours; asked for a bit more and a bit less than two take.
TEST(Plan, HoursAndTokensNameTheFewestDevices) {
  const auto asked = [](double hours) {
    return std::vector<std::string>{"--machine=h100", "--gpus=1..4", "--tokens=1B", fmt::format("--hours={}", hours)};
  };
  const std::string batch = "512";  // of fewer sequences one device is the fastest
  const Json points = planned_json(asked(1), batch)["scaling"];
  const double hours = points[1]["training"]["days"].get<double>() * 24;
  ASSERT_GT(points[0]["training"]["days"].get<double>() * 24, hours * 1.01);
  const Json enough = planned_json(asked(hours * 1.001), batch), less = planned_json(asked(hours * 0.999), batch);
  EXPECT_EQ(enough["fewest_gpus_within_hours"], 2);
  EXPECT_EQ(less["fewest_gpus_within_hours"], 4);
  EXPECT_FALSE(enough["scaling"][0]["training"]["within_hours"]);
  EXPECT_TRUE(enough["scaling"][1]["training"]["within_hours"]);
  EXPECT_FALSE(planned_json(asked(hours / 100), batch).contains("fewest_gpus_within_hours"));
  EXPECT_THAT(planned(asked(hours * 1.001), batch).out,
              HasSubstr("the fewest of these devices that train 1 billion tokens within"));
  EXPECT_THAT(planned(asked(hours / 100), batch).out, HasSubstr("none of these numbers of devices trains"));
}

}  // namespace
}  // namespace echelon
