// The power fails at any moment of a run: on every disk that POSIX allows afterwards, the last checkpoint that was
// announced is complete, and whatever has a manifest has the values of the run.
#include "resume/small_run.h"

#include "checkpoint/state/step_folders.h"
#include "files/recorded_disk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

namespace echelon::testing {
namespace {

using Kind = DiskChange::Kind;

class PowerCuts : public SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    record(AsyncMode::disabled);
  }
  void record(AsyncMode mode) {
    std::filesystem::remove_all(output("run"));
    RunConfig config = SmallRun::config("run");
    config.checkpoint.async_mode = mode;
    config.model.num_hidden_layers = 1;
    config.model.vocab_size = 125;
    config.training.steps = 100;
    config.lr_scheduler.decay = LrDecay::none;
    config.checkpoint.interval = 1;
    config.checkpoint.keep_latest_k = 2;
    RecordingCalls calls(scratch_.path());
    {
      const SubstitutedCalls substituted(calls);
      // Ends without a model: what is looked at here are checkpoints.
      struct Marks final : RunObserver {
        Marks(RecordingCalls& all, RunRequests& requests) : calls(all), ends(requests) {}
        void saved(const std::filesystem::path& folder) override {
          calls.mark(std::stoll(folder.filename().string().substr(5)));
          values[folder.filename()] = read_state(folder);
        }
        void reported(const StepReport& report) override {
          if (saves_meanwhile) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the disk catches up
          if (report.step == (saves_meanwhile ? 12 : 4)) ends.end = RunRequest::restart;
        }
        RecordingCalls& calls;
        RunRequests& ends;
        bool saves_meanwhile = false;
        std::map<std::string, StateValues> values;
      };
      RunRequests requests;
      Marks marks(calls, requests);
      marks.saves_meanwhile = mode != AsyncMode::disabled;
      (void)train(config, {.observer = &marks, .requests = &requests});
      values_ = marks.values;
    }
    changes_ = calls.changes();
  }

  /// What is wrong with a disk after a power cut; none if nothing is.
  std::optional<std::string> fault_of(const std::vector<DiskChange>& changes, std::size_t count, std::mt19937& random) {
    const std::filesystem::path disk = scratch_ / "disk";
    std::filesystem::remove_all(disk);
    write_after_power_cut(changes, count, scratch_.path(), disk, random);
    std::int64_t announced = 0;
    for (std::size_t i = 0; i < count; ++i)
      if (changes[i].kind == Kind::mark) announced = changes[i].offset;
    std::int64_t newest = 0;
    for (const SavedStep& saved : saved_steps(disk / "run" / "checkpoint")) {
      const std::filesystem::path folder = step_folder(disk / "run" / "checkpoint", saved.step);
      try {
        if (read_state(folder) != values_.at(folder.filename()))
          return fmt::format("step {} has other values", saved.step);
      } catch (const Error& error) {
        return fmt::format("step {} has a manifest, but: {}", saved.step, error.what());
      }
      newest = std::max(newest, saved.step);
    }
    if (newest < announced) return fmt::format("step {} was announced, the last one is {}", announced, newest);
    return std::nullopt;
  }
  std::optional<std::string> fault_of_any(const std::vector<DiskChange>& changes, std::size_t first, std::size_t last,
                                          int num_disks, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < num_disks; ++i) {
      const std::size_t count = std::uniform_int_distribution<std::size_t>(first, last)(random);
      if (auto fault = fault_of(changes, count, random))
        return fmt::format("after {} of {} changes: {}", count, changes.size(), *fault);
    }
    return std::nullopt;
  }

  std::vector<DiskChange> changes_;
  std::map<std::string, StateValues> values_;
};

TEST_F(PowerCuts, LeaveTheLastAnnouncedCheckpoint) {
  const bool is_long = std::getenv("ECHELON_LONG_TESTS") != nullptr;
  ASSERT_GT(changes_.size(), 50U);
  const auto fault = fault_of_any(changes_, 0, changes_.size(), is_long ? 50'000 : 3000, 7);
  EXPECT_FALSE(fault.has_value()) << *fault;
}

TEST_F(PowerCuts, WhileTrainingContinuesLeaveTheLastAnnouncedCheckpoint) {
  record(AsyncMode::async);
  ASSERT_GT(values_.size(), 2U);
  const bool is_long = std::getenv("ECHELON_LONG_TESTS") != nullptr;
  const auto fault = fault_of_any(changes_, 0, changes_.size(), is_long ? 50'000 : 1000, 17);
  EXPECT_FALSE(fault.has_value()) << *fault;
}

// The first test sees what each sync is for.
TEST_F(PowerCuts, WithoutAnyOneSyncAreFoundToDoHarm) {
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    if (changes_[i].kind != Kind::sync_file && changes_[i].kind != Kind::sync_folder) continue;
    std::vector<DiskChange> without = changes_;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    const std::size_t last = std::min(without.size(), i + 40);
    EXPECT_TRUE(fault_of_any(without, i, last, 600, 11).has_value())
        << "change " << i << ", the sync of " << changes_[i].path;
  }
}

TEST_F(PowerCuts, WithTheManifestFirstAreFoundToDoHarm) {
  const auto is_name = [](const DiskChange& change, const char* part) {
    return change.kind == Kind::add_name && change.path.filename().string().find(part) != std::string::npos;
  };
  const auto begin = std::ranges::find_if(changes_, [&](const auto& change) { return is_name(change, "rank-"); });
  const auto middle =
      std::find_if(begin, changes_.end(), [&](const auto& change) { return is_name(change, "manifest"); });
  const auto end = std::find_if(middle, changes_.end(), [](const auto& change) { return change.kind == Kind::mark; });
  ASSERT_TRUE(begin != changes_.end() && middle != changes_.end() && end != changes_.end());
  std::rotate(begin, middle, end);
  EXPECT_TRUE(fault_of_any(changes_, 0, changes_.size(), 3000, 13).has_value());
}

}  // namespace
}  // namespace echelon::testing
