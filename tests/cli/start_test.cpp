// Costs of starting the program: CPU time, page faults, libraries. Not wall time, which depends on other processes.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <cstdlib>

#include <filesystem>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::Not;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr double slowness = 20;
#else
constexpr double slowness = 1;
#endif

struct Use {
  double cpu_seconds = 0;
  long page_faults = 0;
};

Use use_of_children() {
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_minflt + use.ru_majflt};
}

Use use_of(const std::vector<std::string>& arguments) {
  const Use before = use_of_children();
  EXPECT_EQ(run_echelon(arguments).status, 0);
  const Use after = use_of_children();
  return {after.cpu_seconds - before.cpu_seconds, after.page_faults - before.page_faults};
}

// 7 ms and 300 faults of 4 KiB as measured. OpenBLAS alone has 30 MB of kernels, which only commands that multiply
// should load.
TEST(Start, HelpTakesFewMilliseconds) {
  const Use use = use_of({"--help"});
  EXPECT_LT(use.cpu_seconds, 0.05 * slowness);
  EXPECT_LT(static_cast<double>(use.page_faults), 1500 * slowness);
}

TEST(Start, TheProgramAlonePrintsItsHelp) {
  const Outcome alone = run_echelon({});
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(alone.out, run_echelon({"--help"}).out);
  EXPECT_THAT(alone.out, HasSubstr("plan"));
}

TEST(Start, HelpLoadsNothingThatComputes) {
  setenv("LD_DEBUG", "libs", 1);
  const Outcome outcome = run_echelon({"--help"});
  unsetenv("LD_DEBUG");
  ASSERT_THAT(outcome.err, HasSubstr("libc.so"));  // the loader prints its work
  EXPECT_THAT(outcome.err, Not(HasSubstr("openblas")));
}

// From the start to the end of the first step of a model of 1 M parameters: 0.2 s of CPU time as measured.
TEST(Start, TheFirstStepIsThereWithinASecond) {
  const std::string folder = scratch_folder() + "/echelon-start";
  ASSERT_EQ(
      run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output", folder, "--vocab-size=300"})
          .status,
      0);
  const Use use =
      use_of({"train", "--model.preset=llama-1m", "--model.vocab_size=300", "--data.path=" + folder + "/train",
              "--training.steps=1", "--training.seq_len=128", "--checkpoint.enable=false", "--output.dir=" + folder});
  EXPECT_LT(use.cpu_seconds, 1 * slowness);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace echelon
