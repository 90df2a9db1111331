// One run at a time in a folder: by a kernel lock, and by the heartbeat where locks are missing or end at a host.
#include "train/save/run_claim.h"

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "files/system_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A file system without locks.
class NoLocks final : public SystemCalls {
 public:
  int lock(int) override {
    errno = ENOLCK;
    return -1;
  }
};

class Claim : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path lock_file() const { return scratch_ / "run.lock"; }
  /// As if a run on another host had written to the lock file then.
  void put_holder(const std::string& holder, std::int64_t seconds_ago) const {
    put(lock_file(), holder);
    const timespec time = {::time(nullptr) - seconds_ago, 0}, both[2] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, lock_file().c_str(), both, 0), 0);
  }
  [[nodiscard]] std::string refusal() const {
    try {
      const RunClaim claim(scratch_.path(), 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::bad_input);
      return error.what();
    }
    return "not refused";
  }
  [[nodiscard]] std::size_t num_attempt_files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      count += entry.path().filename().string().starts_with("attempt-") ? 1 : 0;
    return count;
  }

  ScratchFolder scratch_;
};

TEST_F(Claim, ASecondRunIsRefusedWhileTheFirstLasts) {
  {
    const RunClaim first(scratch_.path(), 0);
    EXPECT_EQ(first.attempt(), 1);
    EXPECT_TRUE(first.is_locked());
    EXPECT_THAT(refusal(), AllOf(HasSubstr("not over"), HasSubstr(fmt::format("process {} on ", ::getpid()))));
    first.require_held();
  }
  EXPECT_EQ(RunClaim(scratch_.path(), 0).attempt(), 2);
}

TEST_F(Claim, AKilledRunOnThisHostHasLeftNothingToWaitFor) {
  { const RunClaim killed(scratch_.path(), 0); }
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  put_holder(fmt::format("process 7 on {}", host.data()), 1);
  EXPECT_EQ(RunClaim(scratch_.path(), 0).attempt(), 2);
}

// The lock of a file system may be known to its host alone.
TEST_F(Claim, AHeartbeatOfAnotherHostRefusesForAMinute) {
  put_holder("process 7 on elsewhere", 20);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("process 7 on elsewhere"), HasSubstr("60 s")));
  EXPECT_EQ(num_attempt_files(), 0U);
  EXPECT_EQ(get(lock_file()), "process 7 on elsewhere");
  put_holder("process 7 on elsewhere", 65);
  EXPECT_EQ(RunClaim(scratch_.path(), 0).attempt(), 1);
}

TEST_F(Claim, WithoutLocksTheHeartbeatAloneKeepsOthersAway) {
  NoLocks calls;
  const SubstitutedCalls substituted(calls);
  {
    const RunClaim first(scratch_.path(), 0);
    EXPECT_FALSE(first.is_locked());
    EXPECT_THAT(refusal(), HasSubstr("not over, or ended without notice"));
    first.require_held();
  }
  const RunClaim second(scratch_.path(), 0);  // the first one has ended properly
  EXPECT_EQ(second.attempt(), 2);
}

TEST_F(Claim, TheHeartbeatGoesOnWhileTheRunLasts) {
  const RunClaim claim(scratch_.path(), 0, {.interval = std::chrono::milliseconds(1)});
  put_holder("", 1000);
  for (int tries = 0; tries < 2000 && get(lock_file()).empty(); ++tries) ::usleep(1000);
  EXPECT_THAT(get(lock_file()), StartsWith(fmt::format("process {} on ", ::getpid())));
}

// A run that hung for minutes and was replaced meanwhile publishes nothing.
TEST_F(Claim, ARunWithoutAHeartbeatLosesItsFolder) {
  NoLocks calls;
  const SubstitutedCalls substituted(calls);
  const RunClaim hung(scratch_.path(), 0, {.interval = std::chrono::hours(1)});
  put_holder("process 7 on elsewhere", 100);
  {
    const RunClaim next(scratch_.path(), 0);
    EXPECT_EQ(next.attempt(), 2);
    EXPECT_THROW(hung.require_held(), Failure);
    next.require_held();
  }
  EXPECT_EQ(num_attempt_files(), 1U);
}

}  // namespace
}  // namespace echelon
