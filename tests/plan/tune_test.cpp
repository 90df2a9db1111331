#include "plan/search/tune.h"

#include "blueprint/small_config.h"
#include "plan/text/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using ::testing::HasSubstr;

PlanRequest small_request() {
  PlanRequest request;
  request.base = echelon::testing::small_config();
  request.machine = read_machine("a100-80");
  request.num_devices = 4;
  request.top = 3;
  return request;
}

// A machine that computes five times and communicates twice as slowly as its file says.
TEST(Tune, LearnsWhatIsSlower) {
  const PlanRequest request = small_request();
  const CostScales truth = {5, 2};
  const MachineSpec real = scaled(request.machine, truth);
  int num_runs = 0;
  const Tuning tuning = tune(request, [&](const RunConfig& config) {
    ++num_runs;
    return simulate(Blueprint(config), real).step_seconds;
  });
  EXPECT_EQ(num_runs, 3);
  ASSERT_EQ(tuning.tried.size(), 3U);
  EXPECT_GT(tuning.error_before, 0.4);
  EXPECT_LT(tuning.error_after, 0.02);
  PlanRequest known = request;
  known.machine = real;
  // The new ranking is, but for what the fit cannot tell, that of the real machine.
  EXPECT_NEAR(tuning.again.plans.front().outcome.step_seconds, find_plans(known).plans.front().outcome.step_seconds,
              0.1 * tuning.again.plans.front().outcome.step_seconds);
  EXPECT_THAT(to_text(tuning), HasSubstr("ranked again"));
  const auto json = nlohmann::json::parse(to_json(tuning, request)),
             plan = nlohmann::json::parse(to_json(find_plans(request), request));
  for (const char* list : {"tried", "plans"})
    for (const auto& [name, value] : plan["plans"][0].items())
      EXPECT_TRUE(json[list][0].contains(name)) << list << " " << name;
  for (const auto& [name, value] : plan.items()) EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_GT(json["tried"][0]["measured_seconds"], 0.0);
}

}  // namespace
}  // namespace echelon
