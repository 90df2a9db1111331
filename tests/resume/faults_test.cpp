// Every call of a run to the file system fails once: training continues, or ends with a sentence, and the last
// checkpoint that was announced can be resumed with the same bits.
#include "resume/small_run.h"

#include "checkpoint/steps_in.h"
#include "files/failing_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace echelon::testing {
namespace {

using ::testing::Not;

class Faults : public SmallRun {
 protected:
  RunConfig config() const {
    RunConfig config = SmallRun::config("run");
    config.model.num_hidden_layers = 1;
    config.training.steps = 4;
    config.checkpoint.interval = 1;
    config.checkpoint.keep_latest_k = 2;
    if (is_async_) config.checkpoint.async_mode = AsyncMode::async;
    return config;
  }
  /// A new folder for each run.
  void clear() const { std::filesystem::remove_all(output("run")); }

  /// Returns the number of calls of the whole run.
  std::int64_t run_with_fault(std::int64_t failing, Fault fault, const Steps& expected, const StateValues& state) {
    SCOPED_TRACE(failing);
    SCOPED_TRACE(static_cast<int>(fault));
    clear();
    FailingCalls calls(failing, fault);
    ReportLog log;
    std::string sentence;
    {
      const SubstitutedCalls substituted(calls);
      try {
        (void)run(config(), log);
      } catch (const Error& error) {
        sentence = error.what();
        EXPECT_GT(sentence.size(), 10U);
        EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
      }
    }
    for (const auto& [step, loss] : steps_of(log).losses) EXPECT_EQ(loss, expected.losses.at(step)) << step;
    EXPECT_TRUE(!sentence.empty() || log.steps.size() == 4);
    std::int64_t announced = 0;
    for (const std::filesystem::path& folder : log.folders)
      if (const std::string name = folder.filename(); name.starts_with("step-")) announced = std::stoll(name.substr(5));
    // Started again, it resumes there and makes the rest.
    ReportLog again;
    const TrainResult result = run(config(), again);
    EXPECT_EQ(result.ended_by, RunRequest::none);
    for (const auto& [step, loss] : steps_of(again).losses) {
      EXPECT_GT(step, announced) << sentence;
      EXPECT_EQ(loss, expected.losses.at(step)) << step;
    }
    EXPECT_EQ(read_state(checkpoint("run", 4)), state);
    EXPECT_TRUE(std::filesystem::exists(output("run") / "model" / "model.safetensors"));
    for (const auto& step : std::filesystem::directory_iterator(output("run") / "checkpoint"))
      EXPECT_TRUE(find_manifest(step.path()).has_value()) << "litter: " << step.path();
    return calls.num_calls();
  }
  void survive_each_fault();

  bool is_async_ = false;
};

TEST_F(Faults, ADiskWithoutSpaceIsFoundBeforeTheFirstStep) {
  class LittleSpace final : public SystemCalls {
    int statvfs(const char* path, struct statvfs* status) override {
      const int result = SystemCalls::statvfs(path, status);
      status->f_frsize = 4096;
      status->f_bavail = 1;
      return result;
    }
  };
  LittleSpace calls;
  const SubstitutedCalls substituted(calls);
  ReportLog log;
  std::string sentence;
  try {
    (void)run(config(), log);
  } catch (const Error& error) {
    sentence = error.what();
    EXPECT_EQ(error.status(), ExitStatus::failure);
  }
  EXPECT_THAT(sentence, ::testing::HasSubstr(" has 4.096 kB free, but a checkpoint and the model have"));
  EXPECT_TRUE(log.steps.empty());
}

TEST_F(Faults, ADiskWithoutSpaceForAllCheckpointsIsAWarning) {
  class SomeSpace final : public SystemCalls {
   public:
    std::uint64_t free = 0;

   private:
    int statvfs(const char* path, struct statvfs* status) override {
      const int result = SystemCalls::statvfs(path, status);
      status->f_frsize = 1;
      status->f_bavail = free;
      return result;
    }
  };
  ReportLog first;
  (void)run(config(), first);
  EXPECT_TRUE(first.warnings.empty());
  std::uint64_t one = 0;  // checkpoint; a manifest that may be longer, and the model, are less than half of it more
  for (const auto& file : std::filesystem::recursive_directory_iterator(checkpoint("run", 4)))
    one += file.is_regular_file() ? file.file_size() : 0;
  for (const auto& [space, has_warning] : {std::pair{5 * one / 2, true}, {4 * one, false}}) {
    clear();
    SomeSpace calls;
    calls.free = space;
    const SubstitutedCalls substituted(calls);
    ReportLog log;
    (void)run(config(), log);
    ASSERT_EQ(log.warnings.size(), has_warning ? 1U : 0U);
    if (!has_warning) continue;
    EXPECT_THAT(log.warnings.front(),
                ::testing::HasSubstr("3 checkpoints (checkpoint.interval = 1, keep_latest_k = 2) and the model have"));
  }
}

void Faults::survive_each_fault() {
  const Steps expected = run(config());
  const StateValues state = read_state(checkpoint("run", 4));
  constexpr Fault faults[] = {Fault::no_space, Fault::io_error, Fault::interrupted, Fault::too_many_files,
                              Fault::short_transfer};
  const bool is_long = std::getenv("ECHELON_LONG_TESTS") != nullptr;
  constexpr std::size_t num_faults = std::size(faults);
  std::int64_t num_calls = run_with_fault(-1, Fault::io_error, expected, state);
  for (std::int64_t i = 0; i < num_calls && !HasFailure(); ++i)
    for (std::size_t f = 0; f < (is_long ? num_faults : 1); ++f) {
      // Each call has another fault in the short form.
      const Fault fault = faults[(static_cast<std::size_t>(i) * 7 / 5 + f) % num_faults];
      num_calls = std::max(num_calls, run_with_fault(i, fault, expected, state));
    }
  EXPECT_GT(num_calls, 100);
}

TEST_F(Faults, OfEveryCallAreSurvived) { survive_each_fault(); }

TEST_F(Faults, OfEveryCallAreSurvivedWhileTrainingContinues) {
  is_async_ = true;
  survive_each_fault();
}

}  // namespace
}  // namespace echelon::testing
