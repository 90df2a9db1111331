// A thread rank that never returns ends its process, with its name; slow ones do not.
#include "base/error.h"
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace echelon {
namespace {

using conformance::Buffer;
using conformance::line;
using conformance::line_group;
using Clock = std::chrono::steady_clock;

void all_reduce(Mesh& mesh) {
  Buffer x(DType::float32, 10);
  mesh.comm(line_group).all_reduce(x.tensor(), ReduceOp::sum).wait();
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

constexpr double forever = 120;  // seconds, after which the test has failed

struct Return : ::testing::Test {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Runs ranks of which some never return, in a process of its own; it ends this one if it returns.
  static void run(int num_ranks, const ThreadOptions& options, const std::function<void(Mesh&)>& body) {
    try {
      run_thread_ranks(line(num_ranks), options, body);
    } catch (const Error&) {
    }
    _exit(99);
  }
};

TEST_F(Return, ARankThatSleepsForeverIsNamed) {
  const auto begin = Clock::now();
  EXPECT_EXIT(run(4, {.compute_permits = 4, .timeout_seconds = 0.3, .return_seconds = 0.5},
                  [](Mesh& mesh) {
                    if (mesh.rank() == 2) sleep(forever);
                    all_reduce(mesh);
                  }),
              ::testing::ExitedWithCode(1),
              "^echelon: rank [013]: group dp_replicate .*waited 0.3 s .comm.timeout_seconds. for all_reduce.*; rank 2 "
              "has not arrived; rank 2 has not returned since, so this process ends\n$");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(40));
}

// All that fail return; who does not has comm.timeout_seconds to hear of it, and the process ends with their status.
TEST_F(Return, TheCauseOfTheOthersIsKeptWithItsStatus) {
  EXPECT_EXIT(
      run(5, {.timeout_seconds = 0.3, .return_seconds = 0.5},
          [](Mesh& mesh) {
            if (mesh.rank() == 0) throw Error("data.path = x is no\nfile");
            if (mesh.rank() >= 3) sleep(forever);
            all_reduce(mesh);
          }),
      ::testing::ExitedWithCode(2),
      "^echelon: rank 0: data.path = x is no file; ranks 3, 4 have not returned since, so this process ends\n$");
}

// No other rank can run, so none can say that it waited too long.
TEST_F(Return, RanksThatKeepAllPermitsAreNamed) {
  EXPECT_EXIT(run(3, {.compute_permits = 1, .timeout_seconds = 0.3, .return_seconds = 2},
                  [](Mesh& mesh) {
                    if (mesh.rank() == 1) sleep(forever);
                    all_reduce(mesh);
                  }),
              ::testing::ExitedWithCode(1), "rank 1 has not returned since, so this process ends\n$");
}

// Whoever reads its standard output has stopped: what is left in its buffer cannot be written. ThreadSanitizer tries to
// all the same, until the alarm.
TEST_F(Return, AFullStandardOutputKeepsNoProcessAlive) {
  const auto ends_or_is_ended = [](int status) {
    return ::testing::ExitedWithCode(1)(status) || ::testing::KilledBySignal(SIGALRM)(status);
  };
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0) _exit(98);
        dup2(ends[1], STDOUT_FILENO);
        run(2, {.compute_permits = 2, .timeout_seconds = 0.3, .return_seconds = 0.5}, [](Mesh& mesh) {
          const std::string text(1 << 20, 'x');
          if (mesh.rank() == 1) std::fwrite(text.data(), 1, text.size(), stdout);
          all_reduce(mesh);
        });
      },
      ends_or_is_ended, "rank 1 has not returned since");
}

std::string error_of(const ThreadOptions& options, const std::function<void(Mesh&)>& body) {
  try {
    run_thread_ranks(line(3), options, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// comm.timeout_seconds is of waits: a rank may compute for longer while none waits for it.
TEST_F(Return, ARankThatOthersDoNotWaitForTakesItsTime) {
  EXPECT_EQ(
      error_of({.timeout_seconds = 0.1, .return_seconds = 0.1}, [](Mesh& mesh) { sleep(mesh.rank() == 1 ? 0.7 : 0); }),
      "");
}

// An evaluation, or a disk: less than comm.timeout_seconds and a few seconds after a failure, it returns by itself.
TEST_F(Return, ARankThatIsSlowAfterAFailureReturns) {
  for (const int permits : {1, 3}) {
    std::atomic<bool> has_returned = false;
    EXPECT_EQ(error_of({.compute_permits = permits, .timeout_seconds = 0.3},
                       [&](Mesh& mesh) {
                         if (mesh.rank() == 0) throw Error("data.path = x is no file");
                         if (mesh.rank() == 1) sleep(0.7);
                         if (mesh.rank() == 1) has_returned = true;
                         all_reduce(mesh);
                       }),
              "rank 0: data.path = x is no file");
    EXPECT_TRUE(has_returned);
  }
}

// A rank that is late by comm.timeout_seconds has failed, but its process ends in order if it returns soon.
TEST_F(Return, ARankThatIsLateReturns) {
  const std::string sentence = error_of({.compute_permits = 3, .timeout_seconds = 0.2}, [](Mesh& mesh) {
    if (mesh.rank() == 1) sleep(0.5);
    all_reduce(mesh);
  });
  EXPECT_NE(sentence.find("; rank 1 has not arrived"), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find("returned"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace echelon
