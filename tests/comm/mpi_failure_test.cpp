// Processes that fail, hang or are killed: the job ends soon, non-zero, and one sentence names the culprit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Job {
  int status = 0;
  double seconds = 0;
  std::string output;
};

/// tests/comm/mpi_failures with this argument on four processes.
Job run_job(const std::string& mode) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string command =
      "mpirun --allow-run-as-root --oversubscribe -n 4 " ECHELON_BINARY_DIR "/mpi_failures " + mode + " 2>&1";
  Job job;
  std::FILE* const output = popen(command.c_str(), "r");
  for (int letter = std::fgetc(output); letter != EOF; letter = std::fgetc(output))
    job.output += static_cast<char>(letter);
  const int status = pclose(output);
  job.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return job;
}

class MpiFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  }
};

// Below the timeout of these modes, which is a minute, and long enough for a machine that does much else.
constexpr double soon = 40;

TEST_F(MpiFailure, ARankThatThrowsEndsTheJobWithItsStatus) {
  const Job bad_input = run_job("error");
  EXPECT_THAT(bad_input.output, HasSubstr("echelon: rank 3: training.steps = 0 is below 1\n"));
  EXPECT_EQ(bad_input.output.find("echelon: "), bad_input.output.rfind("echelon: ")) << bad_input.output;
  EXPECT_EQ(bad_input.status, 2);
  EXPECT_LT(bad_input.seconds, soon);

  const Job foreign = run_job("foreign");
  EXPECT_THAT(foreign.output, HasSubstr("echelon: rank 1: of the library\n"));
  EXPECT_EQ(foreign.status, 1);
  EXPECT_LT(foreign.seconds, soon);
}

TEST_F(MpiFailure, AbortEndsTheJobWithItsSentence) {
  const Job job = run_job("abort");
  EXPECT_THAT(job.output, HasSubstr("echelon: rank 2 lost its disk\n"));
  EXPECT_EQ(job.status, 1);
}

TEST_F(MpiFailure, AKilledProcessEndsTheJob) {
  const Job job = run_job("killed");
  EXPECT_THAT(job.output, AnyOf(HasSubstr("rank 3"), HasSubstr("vpid 3"), HasSubstr(",3]")));  // the launcher says it
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.seconds, soon);
}

// Ranks 3, 2 and 1 wait for one another; only rank 0 is to blame, and 1 alone waits for it.
TEST_F(MpiFailure, AProcessThatHangsIsNamedThroughTheChainOfThoseWhoWait) {
  for (const char* const mode : {"stopped", "asleep"}) {
    const Job job = run_job(mode);
    EXPECT_THAT(job.output, AllOf(HasSubstr("waited 4 s (comm.timeout_seconds) for receive of 5 float32 from rank"),
                                  HasSubstr("; rank 0 does not answer")))
        << mode;
    EXPECT_THAT(job.output,
                Not(AnyOf(HasSubstr("rank 1 does not"), HasSubstr("rank 2 does not"), HasSubstr("rank 3 does not"))))
        << mode;
    EXPECT_EQ(job.status, 1) << mode;
    EXPECT_GT(job.seconds, 4) << mode;
    EXPECT_LT(job.seconds, soon) << mode;
  }
}

// Any of the four may be the one that tells it: of itself it says that it waited, of the others that they wait.
TEST_F(MpiFailure, ACircleOfWaitsIsTold) {
  const Job job = run_job("circle");
  EXPECT_THAT(job.output, HasSubstr(" waited 4 s (comm.timeout_seconds) for "));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string who = fmt::format("rank {} ", rank),
                      what = fmt::format("receive of 5 float32 from rank {}", (rank + 1) % 4);
    EXPECT_THAT(job.output, AnyOf(HasSubstr(who + "waits in " + what),
                                  HasSubstr(who + "waited 4 s (comm.timeout_seconds) for " + what)));
  }
  EXPECT_THAT(job.output, Not(HasSubstr("not answer")));
  EXPECT_EQ(job.status, 1);
}

TEST_F(MpiFailure, DifferentOperationsAreNamed) {
  const auto expect = [](const char* mode, const ::testing::Matcher<const std::string&>& sentence) {
    const Job job = run_job(mode);
    EXPECT_THAT(job.output, sentence) << mode;
    EXPECT_EQ(job.status, 1) << mode;
    EXPECT_LT(job.seconds, soon) << mode;
  };
  expect("kinds", AllOf(HasSubstr("group dp_replicate (ranks 0, 1, 2, 3)"), HasSubstr("rank 1 started barrier"),
                        HasSubstr("started all_reduce(sum) of 10 float32")));
  expect("sizes", AllOf(HasSubstr("rank 1 started all_reduce(sum) of 100001 float32"),
                        HasSubstr("all_reduce(sum) of 100000 float32")));
  expect("dtypes", AllOf(HasSubstr("of 10 float32"), HasSubstr("rank 2 started all_reduce(sum) of 10 int32")));
  expect("roots", AllOf(HasSubstr("from root 0"), HasSubstr("from root 1")));
  expect("transfers", AllOf(HasSubstr("group dp_replicate"), HasSubstr("rank 0 started send of 5 float32 to rank 1"),
                            HasSubstr("rank 1 started receive of 6 float32 from rank 0")));
  expect("left_out", AllOf(HasSubstr("rank 2 started barrier"), HasSubstr("started all_reduce(sum) of 10 float32")));
}

TEST_F(MpiFailure, AThreadRankOfAProcessThatNeverReturnsEndsTheJob) {
  const Job job = run_job("thread_asleep");
  EXPECT_THAT(job.output, HasSubstr("; rank 1 has not arrived; rank 1 has not returned since, so this process ends\n"));
  EXPECT_EQ(job.status, 1);
  EXPECT_LT(job.seconds, soon);
}

TEST_F(MpiFailure, WhatIsDroppedWithoutAWaitIsNamed) {
  const Job job = run_job("dropped");
  EXPECT_THAT(job.output, HasSubstr("rank 1 dropped, without waiting for it, its all_reduce(sum) of 10 float32"));
  EXPECT_EQ(job.status, 1);
}

}  // namespace
}  // namespace echelon
