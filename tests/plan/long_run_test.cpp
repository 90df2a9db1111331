// Days and prices of a whole training, against their closed forms.
#include "plan/search/long_run.h"

#include "base/error.h"
#include "plan/search/search.h"
#include "predict/software/interval.h"

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
  asked.training = {.tokens = "512B", .mtbf = "1000", .checkpoint_seconds = 30, .restart_seconds = 600};
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

// MegaScale's ten minutes to find a failure, where nothing is said; threads of a host read their checkpoint again.
TEST(LongRun, RestartsAfterTenMinutesUnlessItIsTold) {
  PlanQuestion asked = some_question();
  asked.training = {.tokens = "1B", .mtbf = "1000", .checkpoint_seconds = 30};
  const auto restart = [&] {
    const PlanRequest request = read_plan_request(asked);
    return long_run(find_plans(request).plans.front(), request).failures->restart_seconds;
  };
  EXPECT_EQ(restart(), 600);
  asked.training.restart_seconds = 0;
  EXPECT_EQ(restart(), 0);
}

// Days are those of the step's shortest and longest time.
TEST(LongRun, HasTheIntervalOfItsStep) {
  PlanQuestion asked = some_question();
  asked.price = 2;
  asked.training = {.tokens = "512M"};
  const PlanRequest request = read_plan_request(asked);
  const Plan plan = find_plans(request).plans.front();
  const LongRun run = long_run(plan, request);
  const TimeInterval interval = interval_of(request.profile, request.machine).value();
  ASSERT_TRUE(run.range);
  EXPECT_NEAR(run.range->low_seconds / run.seconds, interval.low, 1e-9);
  EXPECT_NEAR(run.range->high_price / run.price, interval.high, 1e-9);
  EXPECT_EQ(to_json(run)["interval_days"][1], run.range->high_seconds / 86400);
  EXPECT_NE(to_text(run, request).find(" days and "), std::string::npos);
  EXPECT_NE(to_text(run, request).find(days_text(run)), std::string::npos);
  EXPECT_NE(days_text(run).find(" to "), std::string::npos);
}

// Llama 3's 419 interruptions in 54 days on 16,384 GPUs (Llama Team 2024, arXiv:2407.21783, section 3.3.4) are one in
// 54 * 24 * 16384 / 419 = 50,677.0 hours of a GPU, and of the job one in 54 * 24 / 419 = 3.093 hours.
TEST(LongRun, TakesFailuresOfADeviceANodeOrTheJob) {
  const auto job_hours = [](const TrainingQuestion& training, std::int64_t gpus) {
    PlanQuestion asked = some_question();
    asked.gpus = gpus;
    asked.global_batch_size = 48;
    asked.settings = {"--parallelism.tensor_parallel_degree=1", "--parallelism.pipeline_parallel_degree=1",
                      "--training.recompute=none"};
    asked.training = training;
    asked.training.tokens = "1T";
    asked.training.checkpoint_seconds = 30;
    const PlanRequest request = read_plan_request(asked);
    return long_run(find_plans(request).plans.front(), request).failures->mtbf_seconds / 3600;
  };
  EXPECT_NEAR(parse_failures("419,54,16384").hours, 50677.0, 0.1);
  EXPECT_NEAR(parse_failures("419,54,16384").hours / 16384, 3.093, 0.001);
  EXPECT_NEAR(job_hours({.failures = "419,54,16384"}, 4), 50677.0 / 4, 0.1);
  EXPECT_NEAR(job_hours({.mtbf = "1000"}, 12), 1000.0 / 12, 1e-9);
  EXPECT_NEAR(job_hours({.mtbf = "1000/device"}, 12), 1000.0 / 12, 1e-9);
  EXPECT_NEAR(job_hours({.mtbf = "1000/node"}, 12), 500, 1e-9);  // nodes of 8: the second has 4 of the devices
  EXPECT_NEAR(job_hours({.mtbf = "1000/node"}, 4), 1000, 1e-9);
  EXPECT_NEAR(job_hours({.mtbf = "1000/job"}, 12), 1000, 1e-9);
}

// 10 hours are 18,000 steps of 2 s. With failures a step takes 2 s / goodput: Daly's 310 steps, 0.938081 as above.
TEST(LongRun, OfHoursTrainsTheWholeStepsInThem) {
  const LongRun run = run_of_hours(10, 1e6, 2, {});
  EXPECT_EQ(run.num_steps, 18000);
  EXPECT_EQ(run.tokens, 18e9);
  EXPECT_EQ(run.seconds, 36000);
  EXPECT_EQ(run_of_hours(0.0005, 1e6, 2, {}).num_steps, 0);  // 1.8 s
  const FailureModel failures = {.mtbf_seconds = 1e4, .checkpoint_seconds = 20};
  const LongRun interrupted = run_of_hours(10, 1e6, 2, failures);
  EXPECT_EQ(interrupted.interval_steps, 310);
  EXPECT_EQ(interrupted.num_steps, std::floor(18000 * interrupted.goodput));
  EXPECT_NEAR(interrupted.goodput, 0.938081, 1e-6);
  EXPECT_LE(interrupted.seconds, 36000);
  EXPECT_GT(interrupted.seconds, 36000 - 2 / 0.938);
  EXPECT_EQ(run_of_hours(10, 1e6, 2, FailureModel{.mtbf_seconds = 1, .checkpoint_seconds = 60}).num_steps, 0);
}

// The tokens of so many hours take so many hours.
TEST(LongRun, HoursAndTokensAreEachOthersInverse) {
  const LongRun run = run_of_hours(100, 1e6, 2, FailureModel{.mtbf_seconds = 1e4, .checkpoint_seconds = 20});
  const LongRun back = long_run(run.tokens, 1e6, 2, FailureModel{.mtbf_seconds = 1e4, .checkpoint_seconds = 20});
  EXPECT_EQ(back.num_steps, run.num_steps);
  EXPECT_NEAR(back.seconds / run.seconds, 1, 1e-12);
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

TEST(LongRun, AsksForTheSecondsOfACheckpointBeforeTheSearch) {
  PlanQuestion asked = some_question();
  asked.training = {.tokens = "1T", .mtbf = "50000"};
  EXPECT_THROW((void)read_plan_request(asked), Error);
  asked.training.checkpoint_seconds = 30;
  EXPECT_NO_THROW((void)read_plan_request(asked));
}

TEST(LongRun, RefusesWhatIsNoTraining) {
  for (const char* tokens : {"many", "15X", "15TT", "-1T", "0", "inf", "nan", "1e30", "T"})
    EXPECT_EQ(refusal_of({.tokens = tokens}),
              fmt::format("--tokens={} is not a number of tokens (example: --tokens=15T)", tokens));
  for (const char* mtbf : {"0", "-1", "much", "5/rack", "/node", "5/", "1e30", "nan"})
    EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf = mtbf}),
              fmt::format("--mtbf={} is not the hours between failures of a device, a node or the job (examples: "
                          "--mtbf=50000, --mtbf=6000/node, --mtbf=3/job)",
                          mtbf));
  for (const char* failures : {"0,54,16384", "419,54", "419,54,16384,1", "419,0,16384", "many", "", ",,", "419,54,"})
    EXPECT_EQ(refusal_of({.tokens = "1T", .failures = failures}),
              *failures == '\0'
                  ? ""
                  : fmt::format("--failures={} is not failures, days and devices (example: --failures=419,54,16384)",
                                failures));
  for (const double hours : {0.0, -1.0, 1e30})
    EXPECT_EQ(refusal_of({.hours = hours}),
              fmt::format("--hours={} is not a time of training (example: --hours=24)", hours));
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf = "9", .failures = "419,54,16384"}),
            "--mtbf=9 and --failures=419,54,16384 set the same value; omit one of them");
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf = "1", .checkpoint_seconds = 0}),
            "--checkpoint-seconds=0 is not the time of a checkpoint (example: --checkpoint-seconds=30)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .mtbf = "1", .checkpoint_seconds = 1, .restart_seconds = -1}),
            "--restart-seconds=-1 is not the time of a restart (example: --restart-seconds=600)");
  EXPECT_EQ(
      refusal_of({.tokens = "1T", .mtbf = "9"}),
      "--mtbf=9/device needs --checkpoint-seconds, since the disk of the machine 'h100' was not measured (example: "
      "--checkpoint-seconds=30)");
  EXPECT_EQ(refusal_of({.tokens = "1T", .checkpoint_seconds = 9}),
            "--checkpoint-seconds and --restart-seconds need --mtbf, the hours between failures (example: "
            "--mtbf=50000)");
  EXPECT_NE(refusal_of({.mtbf = "9"}).find("need --tokens or --hours"), std::string::npos);
  EXPECT_NE(refusal_of({.failures = "419,54,16384"}).find("need --tokens or --hours"), std::string::npos);
}

}  // namespace
}  // namespace echelon
