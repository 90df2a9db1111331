// Disks that fail in the middle of a run, on the system's own files: full, moved away, not to be written, limited.
#include "resume/small_run.h"

#include "checkpoint/steps_in.h"
#include "cli/program.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t many_steps = 1'000'000;

class RealFaults : public SmallRun {
 protected:
  /// A checkpoint after each step.
  RunConfig config(const std::string& folder, std::int64_t num_steps) const {
    RunConfig config = SmallRun::config(folder);
    config.training.steps = num_steps;
    config.lr_scheduler.decay = LrDecay::none;
    config.checkpoint.interval = 1;
    config.checkpoint.keep_latest_k = 2;
    return config;
  }
  std::filesystem::path checkpoints(const std::string& folder) const { return output(folder) / "checkpoint"; }

  /// Runs with `at_step` called after each step, before it is saved. Returns the sentence with which the run ended.
  static std::string run_until_failure(const RunConfig& config, ReportLog& log,
                                       std::function<void(std::int64_t)> at_step) {
    log.after_step = [&](const StepReport& report) { at_step(report.step); };
    try {
      (void)train(config, {.observer = &log});
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::failure);
      return error.what();
    }
    return {};
  }
  /// The run continues after `step` as if its disk had never failed.
  void expect_resumes(const std::string& folder, std::int64_t step) const {
    StateReader(checkpoint(folder, step)).verify();
    const RunConfig config = this->config(folder, step + 3);
    RunConfig plain = config;
    plain.output.dir = output(folder + "-plain").string();
    ReportLog log;
    (void)run(config, log);
    EXPECT_EQ(steps_of(log), after(step, run(plain)));
    EXPECT_THAT(log.warnings, IsEmpty());
  }
};

/// While it lives, this thread and those that it starts are an ordinary user's. Of the system call alone: the library's
/// function changes all threads.
class OrdinaryUser {
 public:
  static constexpr uid_t nobody = 65534;
  OrdinaryUser() { ::syscall(SYS_setresuid, -1, nobody, -1); }
  ~OrdinaryUser() { ::syscall(SYS_setresuid, -1, 0, -1); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;
};

TEST_F(RealFaults, AFolderThatIsMovedAwayEndsTheRunAfterThreeSavesAndIsNotMadeAgain) {
  ReportLog log;
  const std::string sentence = run_until_failure(config("run", many_steps), log, [&](std::int64_t step) {
    if (step == 3) std::filesystem::rename(output("run"), output("moved"));
  });
  EXPECT_THAT(sentence, AllOf(HasSubstr("step 5 could not be saved"), HasSubstr("output.dir was moved"),
                              HasSubstr("the last checkpoint is " + checkpoint("run", 2).string())));
  EXPECT_THAT(log.warnings, SizeIs(2));
  EXPECT_FALSE(std::filesystem::exists(output("run")));
  std::filesystem::rename(output("moved"), output("run"));
  expect_resumes("run", 2);
}

TEST_F(RealFaults, AFolderThatIsBackInTimeIsWrittenAgain) {
  ReportLog log;
  const std::string sentence = run_until_failure(config("run", 7), log, [&](std::int64_t step) {
    if (step == 3) std::filesystem::rename(output("run"), output("moved"));
    if (step == 5) std::filesystem::rename(output("moved"), output("run"));
  });
  EXPECT_EQ(sentence, "");
  EXPECT_THAT(log.warnings, SizeIs(2));
  EXPECT_THAT(steps_in(checkpoints("run")), ElementsAre(6, 7));
  expect_resumes("run", 7);
}

TEST_F(RealFaults, APermissionThatIsTakenAwayEndsTheRunAfterThreeSaves) {
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch_.path()))
      ASSERT_EQ(::chown(entry.path().c_str(), OrdinaryUser::nobody, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(::chown(scratch_.path().c_str(), OrdinaryUser::nobody, static_cast<gid_t>(-1)), 0);
  }
  std::optional<OrdinaryUser> user;
  if (is_root) user.emplace();
  using std::filesystem::perms;
  ReportLog log;
  const std::string sentence = run_until_failure(config("run", many_steps), log, [&](std::int64_t step) {
    if (step == 3) std::filesystem::permissions(checkpoints("run"), perms::owner_read | perms::owner_exec);
  });
  EXPECT_THAT(sentence, AllOf(HasSubstr("step 5 could not be saved"), HasSubstr("Permission denied"),
                              HasSubstr("the last checkpoint is " + checkpoint("run", 2).string())));
  EXPECT_THAT(steps_in(checkpoints("run")), ElementsAre(1, 2));
  std::filesystem::permissions(checkpoints("run"), perms::owner_all);
  expect_resumes("run", 2);
}

// Both runs take the number 1, so the first one's files would replace the second one's.
TEST_F(RealFaults, AFolderThatAnotherRunHasMadeAgainIsNotWritten) {
  ReportLog log;
  Steps second;
  const std::string sentence = run_until_failure(config("run", many_steps), log, [&](std::int64_t step) {
    if (step != 3) return;
    std::filesystem::rename(output("run"), output("moved"));
    second = run(config("run", 6));
  });
  EXPECT_THAT(sentence, HasSubstr("step 5 could not be saved"));
  EXPECT_THAT(steps_in(checkpoints("run")), ElementsAre(5, 6));
  EXPECT_THAT(steps_in(checkpoints("moved")), ElementsAre(1, 2));
  EXPECT_THAT(second.losses, SizeIs(6));
  expect_resumes("run", 6);
}

// In a thread with mounts of its own, so that nothing is left.
TEST_F(RealFaults, ADiskThatFillsDelaysSavesUntilItHasSpaceAgain) {
  std::string skipped;
  std::thread([&] {
    std::filesystem::create_directory(output("disk"));
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", output("disk").c_str(), "tmpfs", 0, "size=64m") != 0) {
      skipped = "no file system may be mounted here";
      return;
    }
    const std::filesystem::path filler = output("disk") / "filler";
    ReportLog log;
    const std::string sentence = run_until_failure(config("disk/run", 8), log, [&](std::int64_t step) {
      if (step == 4) {
        std::ofstream file(filler, std::ios::binary);
        for (const std::string block(4096, 'x'); file.write(block.data(), std::ssize(block)).flush();) {
        }
      }
      if (step == 6) std::filesystem::remove(filler);
    });
    EXPECT_EQ(sentence, "");
    EXPECT_THAT(log.warnings, AllOf(SizeIs(::testing::Ge(2U)), Each(HasSubstr("training continues"))));
    EXPECT_THAT(steps_in(checkpoints("disk/run")), ElementsAre(7, 8));
    EXPECT_EQ(std::ranges::count(log.folders, checkpoint("disk/run", 4)), 0);
    expect_resumes("disk/run", 8);
  }).join();
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST_F(RealFaults, ALimitOfFileSizesIsAnErrorAndNoSignal) {
  (void)run(config("run", 3));
  const std::string path = output("run").string() + ".toml";
  std::ofstream(path) << to_toml(config("run", 9));
  const Outcome outcome = run_command({"sh", "-c", "ulimit -f 8; exec " ECHELON_BINARY_DIR "/echelon train " + path});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 6 could not be saved"), HasSubstr("File too large"),
                                 HasSubstr("the last checkpoint is " + checkpoint("run", 3).string())));
  EXPECT_THAT(steps_in(checkpoints("run")), ElementsAre(2, 3));
  expect_resumes("run", 3);
}

}  // namespace
}  // namespace echelon::testing
