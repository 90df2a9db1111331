// A run of which one rank hangs, for good, outside of all communication: the process ends.
#include "resume/small_run.h"

#include <gtest/gtest.h>

#include <thread>

namespace echelon::testing {
namespace {

class MissingRank : public SmallRun {
 protected:
  RunConfig config(double timeout_seconds) const {
    RunConfig config = SmallRun::config("run");
    config.training.steps = 4;
    config.parallelism.data_parallel_shard_degree = 2;
    config.checkpoint.interval = 1;
    config.checkpoint.async_mode = AsyncMode::async;
    config.comm.timeout_seconds = timeout_seconds;
    return config;
  }
};

TEST_F(MissingRank, EndsTheRunWithItsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(
      {
        ReportLog log;
        log.after_step = [](const StepReport& report) {
          if (report.step == 2) std::this_thread::sleep_for(std::chrono::minutes(2));
        };
        (void)train(config(1), {.observer = &log});
      },
      ::testing::ExitedWithCode(1), "rank 0 has not arrived.*; rank 0 has not returned since, so this process ends\n$");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// What an observer, a disk or a debugger takes of a rank's time is no hang while it is less than comm.timeout_seconds.
TEST_F(MissingRank, IsNotOneThatIsSlow) {
  ReportLog log;
  log.after_step = [](const StepReport&) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
  EXPECT_EQ(train(config(1), {.observer = &log}).ended_by, RunRequest::none);
  EXPECT_EQ(log.steps.size(), 4U);
}

}  // namespace
}  // namespace echelon::testing
