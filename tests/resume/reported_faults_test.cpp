// Faults of saving and resuming that were reported of other systems. None of them is here: each is a run that the fault
// would change.
#include "resume/small_run.h"

#include "checkpoint/steps_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <functional>

namespace echelon::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

class ReportedFault : public SmallRun {
 protected:
  static constexpr double loss_tolerance = 1e-11, state_tolerance = 1e-9;

  /// Saves after step 3 in one way, resumes in each of the others, and compares with a run that goes through.
  void expect_resumable(const std::function<void(RunConfig&)>& saved,
                        const std::vector<std::function<void(RunConfig&)>>& resumed) {
    const Steps expected = run(config("whole"));
    RunConfig saving = config("run");
    saved(saving);
    (void)run(saving, 3);
    for (std::size_t i = 0; i < resumed.size(); ++i) {
      SCOPED_TRACE(i);
      const std::string folder = fmt::format("resumed{}", i);
      std::filesystem::copy(output("run"), output(folder), std::filesystem::copy_options::recursive);
      RunConfig resuming = config(folder);
      resumed[i](resuming);
      const Steps steps = run(resuming);
      EXPECT_THAT(steps.losses, ElementsAre(Key(4), Key(5), Key(6), Key(7), Key(8)));
      for (const auto& [step, loss] : steps.losses) EXPECT_NEAR(loss, expected.losses.at(step), loss_tolerance);
      const double floor = resuming.optimizer.lr;
      EXPECT_LE(worst_difference(read_state(checkpoint(folder, 8)), read_state(checkpoint("whole", 8)), floor),
                state_tolerance);
    }
  }
  static auto shards(int degree, int zero_level) {
    return [=](RunConfig& config) {
      config.parallelism.data_parallel_shard_degree = degree;
      config.parallelism.zero_level = zero_level;
    };
  }
};

// deepspeedai/DeepSpeed#3810, #2898: the state of the optimizer is of another number of data-parallel ranks.
TEST_F(ReportedFault, ADataParallelDegreeThatChanges) {
  expect_resumable(shards(4, 1), {shards(1, 1), shards(2, 1), shards(3, 2), shards(6, 3)});
}

// ROCm/Megatron-LM#63: gate and up projection of eight shards, loaded on 1, 2, 4 and 16 ranks, change places.
TEST_F(ReportedFault, FusedGateAndUpProjectionsOnFewerAndMoreRanks) {
  const auto tensor = [](int tp, int shard) {
    return [=](RunConfig& config) {
      config.parallelism.tensor_parallel_degree = tp;
      config.parallelism.data_parallel_shard_degree = shard;
      config.parallelism.zero_level = 3;
    };
  };
  expect_resumable(tensor(4, 2), {tensor(1, 1), tensor(2, 1), tensor(1, 4), tensor(4, 4)});
}

// pytorch/torchtitan#811, #816: the model is loaded on other ranks, and the data loader starts again.
// NVIDIA-NeMo/Megatron-Bridge#4565: the sampler repeats the end of the epoch.
// huggingface/transformers#40691: the order of the data is wrong if the run resumes after the first epoch.
TEST_F(ReportedFault, DataThatIsRepeatedAfterAnEpoch) {
  write_data("data", 16 * 30 + 1);  // 30 sequences; a step takes 12, so step 3 crosses the end of the first epoch
  expect_resumable(shards(2, 1), {shards(2, 1), shards(3, 1), shards(4, 3)});
}

// facebookresearch/metaseq#53: files of no bytes are taken for the last checkpoint.
// Lightning-AI/pytorch-lightning#688: a checkpoint that is being written is taken for a whole one.
TEST_F(ReportedFault, EmptyAndUnfinishedFilesThatAreTakenForACheckpoint) {
  const RunConfig config = this->config("run");
  const Steps expected = run(this->config("whole"));
  (void)run(config, 7);  // checkpoints after steps 3, 6 and 7
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint("run", 6)))
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 0);
  std::filesystem::remove(checkpoint("run", 7) / "attempt-0001-manifest.json");
  ReportLog log;
  (void)run(config, log);
  EXPECT_THAT(log.warnings, Contains(HasSubstr("passing over step 6")));
  EXPECT_THAT(log.lines, Contains(HasSubstr("resuming from step 3")));
  EXPECT_EQ(steps_of(log), after(3, expected));
}

// NVIDIA/Megatron-LM#780: a run that diverged at a step does not diverge there when it is resumed before it.
TEST_F(ReportedFault, AStepThatDivergesDoesSoAgain) {
  RunConfig config = this->config("run");
  config.optimizer.lr = 1e200;  // the weights overflow in a step or two
  config.checkpoint.interval = 1;
  const auto fault = [&] {
    ReportLog log;
    try {
      (void)run(config, log);
    } catch (const Error& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  const std::string first = fault();
  EXPECT_THAT(first, HasSubstr("the run diverged"));
  EXPECT_EQ(fault(), first);
}

// pytorch/torchtitan#1301: everybody waits for a save. pytorch/pytorch#170163: each asynchronous save leaks.
// NVIDIA/Megatron-LM#1707: memory ends while a checkpoint is saved. Here a save has the memory that was planned.
TEST_F(ReportedFault, MemoryThatGrowsWithTheFirstSave) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  RunConfig config = this->config("run");
  config.parallelism.data_parallel_shard_degree = 2;
  config.model.vocab_size = 20'000;  // 7.7 MB of state on each rank
  config.checkpoint.interval = 4;
  config.checkpoint.async_mode = AsyncMode::async;
  ReportLog log;
  (void)run(config, log);
  ASSERT_EQ(log.steps.size(), 8U);
  const std::int64_t before = log.steps[3].process_peak_bytes, buffers = 4 << 20;
  EXPECT_LE(log.steps[7].process_peak_bytes - before, buffers + (4 << 20));
  EXPECT_THAT(log.warnings, IsEmpty());
}

}  // namespace
}  // namespace echelon::testing
