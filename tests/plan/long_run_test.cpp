// Days and prices of a whole training, against their closed forms.
#include "plan/search/long_run.h"

#include "base/error.h"
#include "plan/search/search.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace echelon {
namespace {

PlanQuestion some_question() {
  return {.model = "llama-1m", .machine = "h100", .gpus = 4, .global_batch_size = 8, .seq_len = 64, .top = 1};
}

// 1e12 tokens by 1e6 are a million steps of 2 s: 2e6 s.
TEST(LongRun, TakesTheStepsOfItsTokens) {
  const LongRun run = long_run(1e12, 1e6, 2, {});
  EXPECT_EQ(run.num_steps, 1e6);
  EXPECT_EQ(run.seconds, 2e6);
  EXPECT_EQ(run.goodput, 1);
  EXPECT_EQ(long_run(1e6 + 1, 1e6, 2, {}).num_steps, 2);
}

// M = 1e4 s, delta = 20 s. Young: sqrt(2 delta M) = 632.456 s; Daly: 632.456 (1 + 0.0316228/3 + 0.001/9) - 20 =
// 619.193 s, the nearest steps of 2 s are 310. Goodput without restarts: 620/(1e4 (e^0.064 - 1)) = 0.938081.
TEST(LongRun, SavesAtDalysIntervalAndPaysForFailures) {
  const LongRun run = long_run(1e12, 1e6, 2, FailureModel{.mtbf_seconds = 1e4, .checkpoint_seconds = 20});
  EXPECT_EQ(run.interval_steps, 310);
  EXPECT_NEAR(run.goodput, 0.938081, 1e-6);
  EXPECT_NEAR(run.seconds / (2e6 / 0.938081), 1, 1e-6);
  const LongRun restarts =
      long_run(1e12, 1e6, 2, FailureModel{.mtbf_seconds = 1e4, .checkpoint_seconds = 20, .restart_seconds = 1000});
  EXPECT_NEAR(restarts.seconds / run.seconds, std::exp(0.1), 1e-9);
}

TEST(LongRun, SavesAfterAWholeStepAtLeastAndEndsNeverWhereNothingIsKept) {
  EXPECT_EQ(long_run(1e9, 1e6, 2000, FailureModel{.mtbf_seconds = 1e4, .checkpoint_seconds = 1}).interval_steps, 1);
  EXPECT_TRUE(std::isinf(long_run(1e9, 1e6, 2, FailureModel{.mtbf_seconds = 1, .checkpoint_seconds = 60}).seconds));
}

// A step has 8 * 64 tokens. A device fails every 1000 hours, so the job of 4 devices every 250; 4 devices cost 2 each.
TEST(LongRun, OfAPlanCountsItsDevicesAndTheirPrice) {
  PlanQuestion asked = some_question();
  asked.price = 2;
  asked.training = {.tokens = "512B", .mtbf_hours = 1000, .checkpoint_seconds = 30, .restart_seconds = 600};
  const PlanRequest request = read_plan_request(asked);
  const Plan plan = find_plans(request).plans.front();
  const LongRun run = long_run(plan, request);
  EXPECT_EQ(run.num_steps, 1e9);
  ASSERT_TRUE(run.failures);
  EXPECT_EQ(run.failures->mtbf_seconds, 250 * 3600);
  const double step = plan.outcome.step_seconds, M = 250 * 3600, tau = run.interval_steps * step;
  EXPECT_NEAR(tau, std::sqrt(2 * 30 * M), 40);  // Young's; Daly's is 20 s less here
  EXPECT_NEAR(run.seconds / (1e9 * step / tau * M * std::exp(600 / M) * std::expm1((tau + 30) / M)), 1, 1e-9);
  EXPECT_NEAR(run.device_hours / (4 * run.seconds / 3600), 1, 1e-12);
  EXPECT_NEAR(run.price / (2 * run.device_hours), 1, 1e-9);
  EXPECT_NE(to_text(run, request).find("the job fails every 250 hours"), std::string::npos);
  EXPECT_EQ(to_json(run)["checkpoint_interval_steps"], run.interval_steps);
}

std::string refusal_of(const TrainingQuestion& training) {
  PlanQuestion asked = some_question();
  asked.training = training;
  try {
    const PlanRequest request = read_plan_request(asked);
    (void)long_run(find_plans(request).plans.front(), request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LongRun, ReadsTokensAsTheyAreWritten) {
  EXPECT_EQ(parse_tokens("15T"), 15e12);
  EXPECT_EQ(parse_tokens("0.3b"), 3e8);
  EXPECT_EQ(parse_tokens("2M"), 2e6);
  EXPECT_EQ(parse_tokens("64k"), 64000);
  EXPECT_EQ(parse_tokens("1.5e12"), 1.5e12);
}

TEST(LongRun, RefusesWhatIsNoTraining) {
  for (const char* tokens : {"many", "15X", "15TT", "-1T", "0", "inf", "nan", "1e30", "T"})
    EXPECT_EQ(refusal_of({.tokens = tokens}),
              fmt::format("--tokens={} is not a number of tokens (example: --tokens=15T)", tokens));
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf_hours = 0}),
            "--mtbf=0 is not the hours between failures of a device (example: --mtbf=50000)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf_hours = 1, .checkpoint_seconds = 0}),
            "--checkpoint-seconds=0 is not the time of a checkpoint (example: --checkpoint-seconds=30)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf_hours = 1, .checkpoint_seconds = 1, .restart_seconds = -1}),
            "--restart-seconds=-1 is not the time of a restart (example: --restart-seconds=600)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf_hours = 9}),
            "--mtbf=9 needs --checkpoint-seconds, since the disk of the machine 'h100' was not measured (example: "
            "--checkpoint-seconds=30)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .checkpoint_seconds = 9}),
            "--checkpoint-seconds and --restart-seconds need --mtbf, the hours between failures of a device");
  EXPECT_NE(refusal_of({.tokens = "", .mtbf_hours = 9}).find("need --tokens"), std::string::npos);
}

}  // namespace
}  // namespace echelon
