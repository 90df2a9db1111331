// Checkpoints that are written while training continues are those for which training waits, bit for bit; what is left
// out or fails is said.
#include "resume/small_run.h"

#include "files/system_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Writes of files wait until the disk is released.
class HeldDisk final : public SystemCalls {
 public:
  ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset) override {
    std::unique_lock lock(mutex_);
    is_waiting_ = is_held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_held_; });
    lock.unlock();
    return SystemCalls::pwrite(file, data, count, offset);
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_held_ = is_waiting_ = false;
    changed_.notify_all();
  }
  void wait_for_write() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_waiting_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false, is_waiting_ = false;
};

/// Knows when nothing has been written for a while.
class WatchedDisk final : public SystemCalls {
  using Clock = std::chrono::steady_clock;
  auto watched(const auto& call) {
    count(1);
    const auto result = call();
    count(-1);
    return result;
  }
  void count(int change) {
    const std::lock_guard lock(mutex_);
    num_under_way_ += change;
    num_calls_ += change > 0 ? 1 : 0;
    last_ = Clock::now();
    changed_.notify_all();
  }

 public:
  ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset) override {
    return watched([&] { return SystemCalls::pwrite(file, data, count, offset); });
  }
  int fsync(int file) override {
    return watched([&] { return SystemCalls::fsync(file); });
  }
  int write_back(int file, off_t offset, off_t size, bool waits) override {
    return watched([&] { return SystemCalls::write_back(file, offset, size, waits); });
  }
  [[nodiscard]] std::int64_t num_calls() {
    const std::lock_guard lock(mutex_);
    return num_calls_;
  }
  /// After so many calls at least.
  void wait_until_idle(std::int64_t num_calls) {
    constexpr auto pause = std::chrono::milliseconds(60);
    std::unique_lock lock(mutex_);
    const Clock::time_point begin = Clock::now();
    while (num_calls_ < num_calls || num_under_way_ > 0 || Clock::now() < std::max(begin, last_) + pause)
      changed_.wait_for(lock, pause);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_under_way_ = 0;
  std::int64_t num_calls_ = 0;
  Clock::time_point last_;
};

class AsyncSave : public SmallRun {
 protected:
  RunConfig config(const std::string& folder, std::int64_t snapshot_bytes = -1) const {
    RunConfig config = SmallRun::config(folder);
    config.training.steps = 9;
    config.checkpoint.interval = 4;
    config.checkpoint.async_mode = AsyncMode::async;
    config.checkpoint.snapshot_bytes = snapshot_bytes;
    return config;
  }
  /// Runs with pauses after steps, in which the disk catches up, however slow it is.
  static Steps run_slowly(const RunConfig& config, ReportLog& log) {
    WatchedDisk disk;
    const SubstitutedCalls substituted(disk);
    // What is due after a step is copied in the next one, and written from then on.
    std::int64_t num_calls = 0;
    log.after_step = [&, interval = config.checkpoint.interval](const StepReport& report) {
      const std::int64_t since = report.step % interval;
      if (since == 0) num_calls = disk.num_calls();
      disk.wait_until_idle(report.step > interval && since > 1 ? num_calls + 1 : 0);
    };
    (void)train(config, {.observer = &log});
    return steps_of(log);
  }
};

struct AsyncCase {
  const char* name;
  void (*set)(RunConfig& config);
};

void PrintTo(const AsyncCase& each, std::ostream* out) { *out << each.name; }

const AsyncCase cases[] = {
    {"one_rank_float64", [](RunConfig&) {}},
    {"zero3_tp2_float32",
     [](RunConfig& config) {
       config.training.dtype = DType::float32;
       config.parallelism.data_parallel_shard_degree = config.parallelism.tensor_parallel_degree = 2;
       config.parallelism.zero_level = 3;
     }},
    {"dp3_remainders",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.optimizer.store_param_remainders = true;
       config.parallelism.data_parallel_replicate_degree = 3;
     }},
    {"pp2_moments_in_16_bits",
     [](RunConfig& config) {
       config.training.dtype = DType::bfloat16;
       config.optimizer.moments_dtype = DType::bfloat16;
       config.parallelism.pipeline_parallel_degree = 2;
     }},
    {"hsdp_float16",
     [](RunConfig& config) {
       config.training.dtype = DType::float16;
       config.grad_scaler.init_scale = 1 << 22;
       config.grad_scaler.growth_interval = 2;
       config.parallelism.data_parallel_shard_degree = config.parallelism.data_parallel_replicate_degree = 2;
       config.parallelism.zero_level = 1;
     }},
};

class AsyncSaves : public AsyncSave, public ::testing::WithParamInterface<AsyncCase> {};

// Claim (training): Checkpoints that are written while training continues, from a copy of all values,
//   of some of them, or in place, equal those for which training waits.
// Bound: identical bits of all states; the same losses.
// Tests: Layouts/AsyncSaves
TEST_P(AsyncSaves, EqualThoseForWhichTrainingWaits) {
  RunConfig waiting = config("waiting");
  GetParam().set(waiting);
  waiting.checkpoint.async_mode = AsyncMode::disabled;
  const Steps expected = run(waiting);
  const Manifest waited = StateReader(checkpoint("waiting", 4)).manifest();
  const std::int64_t most_bytes = waited.files.front().num_bytes;
  for (const std::int64_t snapshot_bytes : {std::int64_t{-1}, most_bytes / 2, std::int64_t{0}}) {
    SCOPED_TRACE(snapshot_bytes);
    const std::string folder = "async-" + std::to_string(snapshot_bytes);
    RunConfig config = this->config(folder, snapshot_bytes);
    GetParam().set(config);
    ReportLog log;
    EXPECT_EQ(run_slowly(config, log), expected);
    EXPECT_THAT(log.warnings, IsEmpty());
    for (const std::int64_t step : {4, 8, 9}) {
      SCOPED_TRACE(step);
      EXPECT_THAT(log.folders, Contains(checkpoint(folder, step)));
      EXPECT_EQ(read_state(checkpoint(folder, step)), read_state(checkpoint("waiting", step)));
      EXPECT_EQ(StateReader(checkpoint(folder, step)).manifest().scalars,
                StateReader(checkpoint("waiting", step)).manifest().scalars);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, AsyncSaves, ::testing::ValuesIn(cases),
                         [](const auto& each) { return each.param.name; });

TEST_F(AsyncSave, OfAnEmulatedGpuIsOfTheSameState) {
  setenv("ECHELON_CUDA_PLUGIN", ECHELON_BINARY_DIR "/libechelon_cuda_emulated.so", 1);
  const auto config_of = [&](AsyncMode mode, const std::string& folder) {
    RunConfig config = this->config(folder);
    config.training.device = DeviceChoice::cuda;
    config.training.dtype = DType::float32;
    config.model.num_hidden_layers = 1;
    config.training.global_batch_size = 1;
    config.training.steps = 5;
    config.checkpoint.interval = 2;
    config.checkpoint.async_mode = mode;
    return config;
  };
  for (const AsyncMode mode : {AsyncMode::disabled, AsyncMode::async, AsyncMode::async_with_pinned_mem}) {
    ReportLog log;
    (void)run_slowly(config_of(mode, std::string(name_of(mode))), log);
    for (const std::int64_t step : {2, 5})
      EXPECT_EQ(read_state(checkpoint(std::string(name_of(mode)), step)), read_state(checkpoint("disabled", step)))
          << name_of(mode) << " " << step;
  }
  RunConfig in_place = config_of(AsyncMode::async, "in-place");
  in_place.checkpoint.snapshot_bytes = 0;
  try {
    (void)run(in_place);
    ADD_FAILURE() << "a GPU's state is not written in place";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("checkpoint.snapshot_bytes = 0"));
  }
  unsetenv("ECHELON_CUDA_PLUGIN");
}

TEST_F(AsyncSave, LeavesOutWhatIsDueMeanwhile) {
  RunConfig config = this->config("run");
  config.checkpoint.interval = 3;
  HeldDisk disk;
  const SubstitutedCalls substituted(disk);
  ReportLog log;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 3) disk.hold();
    if (report.step == 4) disk.wait_for_write();
    if (report.step == 7) disk.release();
    if (report.step >= 7) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  (void)train(config, {.observer = &log});
  EXPECT_EQ(steps_of(log).losses.size(), 9U) << "training continued while the disk was held";
  EXPECT_THAT(
      log.warnings,
      ElementsAre(HasSubstr("the checkpoint of step 6 is left out, since that of step 3 is still being written")));
  EXPECT_THAT(log.folders, ElementsAre(checkpoint("run", 3), checkpoint("run", 9), output("run") / "model"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 6)));
}

TEST_F(AsyncSave, WarnsOnceOfWhatItLeavesOut) {
  RunConfig config = this->config("run");
  config.checkpoint.interval = 3;
  config.training.steps = 15;
  HeldDisk disk;
  const SubstitutedCalls substituted(disk);
  ReportLog log;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 3) disk.hold();
    if (report.step == 4) disk.wait_for_write();
    if (report.step == 13) disk.release();
  };
  (void)train(config, {.observer = &log});
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("the checkpoint of step 6 is left out"),
                                        HasSubstr("3 checkpoints in all were left out")));
}

TEST_F(AsyncSave, ADiskThatTakesTooLongHasFailed) {
  for (const bool waits : {false, true}) {
    SCOPED_TRACE(waits ? "training waits" : "training continues");
    const std::string folder = waits ? "waits" : "continues";
    RunConfig config = this->config(folder);
    config.checkpoint.interval = 3;
    config.checkpoint.timeout_seconds = waits ? 3 : 0.3;
    if (waits) config.checkpoint.async_mode = AsyncMode::disabled;
    config.parallelism.data_parallel_shard_degree = 2;
    config.comm.timeout_seconds = 2;  // shorter than the disk holds ranks that wait
    HeldDisk disk;
    const SubstitutedCalls substituted(disk);
    ReportLog log;
    log.after_step = [&](const StepReport& report) {
      if (report.step == 3) disk.hold();
      if (report.step == 4 && !waits) std::this_thread::sleep_for(std::chrono::milliseconds(320));
    };
    log.after_warning = [&] { disk.release(); };
    EXPECT_EQ(train(config, {.observer = &log}).checkpoint, checkpoint(folder, 9));
    EXPECT_THAT(log.warnings, ElementsAre(AllOf(HasSubstr("step 3 could not be saved: rank 0: the disk took more than "
                                                          "checkpoint.timeout_seconds = "),
                                                HasSubstr("training continues"))));
    EXPECT_FALSE(std::filesystem::exists(checkpoint(folder, 3))) << "litter";
    EXPECT_EQ(steps_of(log).losses.size(), 9U);
  }
}

TEST_F(AsyncSave, AnUpdateWaitsForValuesThatAreWrittenInPlace) {
  const auto config_of = [&](const std::string& folder) {  // with more values than a writer takes at a time
    RunConfig config = this->config(folder, 0);
    config.model.vocab_size = 10000;
    config.training.global_batch_size = 1;
    return config;
  };
  const Steps expected = run(config_of("plain"));
  HeldDisk disk;
  const SubstitutedCalls substituted(disk);
  ReportLog log;
  std::thread releases;
  std::map<std::int64_t, double> waited;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 4) {
      disk.hold();
      releases = std::thread([&] {
        disk.wait_for_write();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        disk.release();
      });
    }
    waited[report.step] = report.snapshot_wait_seconds;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  (void)train(config_of("run"), {.observer = &log});
  releases.join();
  EXPECT_GE(waited.at(5), 0.15);
  EXPECT_EQ(waited.at(4), 0);
  EXPECT_EQ(steps_of(log), expected);
  EXPECT_EQ(read_state(checkpoint("run", 4)), read_state(checkpoint("plain", 4)));
}

}  // namespace
}  // namespace echelon::testing
