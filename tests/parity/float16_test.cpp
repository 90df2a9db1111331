// float16 with dynamic loss scaling under layouts: losses follow float32, and a step that overflows anywhere is skipped
// everywhere and leaves no trace.
#include "engine/tensor_collection.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

namespace echelon::testing {
namespace {

std::string name_of_layout(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }

const Layout float16_layouts[] = {
    {.replicate = 2, .microbatches = 1},
    {.shard = 4, .zero = 2},
    {.tp = 2, .sequence_parallel = true, .family = Family::gpt2, .tied = true},
    {.pp = 4, .microbatches = 1},
    {.shard = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 5, .tied = true},
    {.replicate = 2, .shard = 2, .microbatches = 3, .zero = 3},
    {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 4, .zero = 3},
    {.shard = 2, .microbatches = 3, .experts = 4, .router_losses = true, .ep = 2},
    {.shard = 4, .zero = 3, .experts = 8, .router_losses = true, .ep = 4, .bound = 0.5},
    {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .experts = 8, .ep = 2, .etp = 2},
    {.shard = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 5, .experts = 6, .ep = 2}};

class Float16 : public ::testing::TestWithParam<Layout> {};

// 11 bits: closer than bfloat16 by three.
TEST_P(Float16, LossesFollowFloat32) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 5;
  config.optimizer.lr = 1e-3;
  config.training.dtype = DType::float32;
  const auto expected = run_training(one_rank(config));
  config.training.dtype = DType::float16;
  config.grad_scaler.init_scale = 1024;  // of some batches only 24 tokens count
  for (const DType reduce : {DType::float32, DType::float16}) {
    config.training.reduce_dtype = reduce;
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    for (std::size_t step = 0; step < expected->losses.size(); ++step) {
      EXPECT_NEAR(actual->losses[step], expected->losses[step], 0.003 * expected->losses[step]) << step;
      EXPECT_NEAR(actual->grad_norms[step], expected->grad_norms[step], 0.03 * expected->grad_norms[step]) << step;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, Float16, ::testing::ValuesIn(float16_layouts), name_of_layout);

/// Batches of another source: those of `numbers`, one after the other.
class SomeBatches final : public BatchSource {
 public:
  SomeBatches(const BatchSource& all, std::int64_t batch_size, std::vector<std::int64_t> numbers)
      : all_(all), batch_size_(batch_size), numbers_(std::move(numbers)) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    all_.read(numbers_[static_cast<std::size_t>(sequence / batch_size_)] * batch_size_ + sequence % batch_size_,
              seq_len, tokens, targets);
  }

 private:
  const BatchSource& all_;
  std::int64_t batch_size_;
  std::vector<std::int64_t> numbers_;
};

/// What every rank says of every step, and the weights after each.
class SkipWatcher final : public RunObserver {
 public:
  void starts(const RankView& rank) override { weights_[0].add_values(rank.run.model(), rank.ops); }
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override {
    weights_[step].add_values(rank.run.model(), rank.ops);
    const std::lock_guard lock(mutex_);
    skipped_[rank.mesh.rank()].push_back(result.is_skipped);
    losses_[rank.mesh.rank()].push_back(result.loss);
  }
  [[nodiscard]] const std::map<int, std::vector<bool>>& skipped() const { return skipped_; }
  [[nodiscard]] const std::vector<double>& losses() const { return losses_.at(0); }
  [[nodiscard]] const TensorCollection& weights(std::int64_t after_step) const { return weights_[after_step]; }

 private:
  std::mutex mutex_;
  TensorCollection weights_[7];
  std::map<int, std::vector<bool>> skipped_;
  std::map<int, std::vector<double>> losses_;
};

double mean_difference(const TensorCollection& a, const TensorCollection& b) {
  double sum = 0, count = 0;
  for (const auto& [name, numbers] : b.tensors())
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      sum += std::abs(a.tensors().at(name)[i] - numbers[i]);
      ++count;
    }
  return sum / count;
}

class Overflow : public ::testing::TestWithParam<Layout> {};

// Targets are in one sequence of each batch, so that most ranks see no overflow of their own. At 2^30 a gradient of a
// logit is beyond float16 in any layout, at 2^12 none is. Without the steps that are skipped it is float32's run on the
// other batches: AdamW counts updates, not steps.
TEST_P(Overflow, IsSkippedByAllRanksAlikeAndLeavesNoTrace) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 6;
  config.lr_scheduler = {.warmup_steps = 0, .decay = LrDecay::none};
  config.optimizer.lr = 1e-3;
  config.training.dtype = DType::float16;
  config.grad_scaler = {.init_scale = 0x1p30, .growth_factor = 0x1p18, .backoff_factor = 0x1p-18, .growth_interval = 3};
  const FormulaBatches batches(config, Targets::of_one_sequence);
  SkipWatcher actual;
  run_layout({.blueprint = Blueprint(config), .batches = batches, .num_steps = config.training.steps}, actual);
  EXPECT_EQ(actual.skipped().size(), static_cast<std::size_t>(config.mesh_shape().num_ranks()));
  for (const auto& [rank, skipped] : actual.skipped())
    EXPECT_EQ(skipped, (std::vector{true, false, false, false, true, false})) << "rank " << rank;
  EXPECT_EQ(mean_difference(actual.weights(1), actual.weights(0)), 0);
  EXPECT_EQ(mean_difference(actual.weights(5), actual.weights(4)), 0);
  EXPECT_GT(mean_difference(actual.weights(2), actual.weights(1)), 0.1 * config.optimizer.lr);

  config.training.dtype = DType::float32;
  config.grad_scaler = {};
  const SomeBatches others(batches, config.training.global_batch_size, {1, 2, 3, 5});
  SkipWatcher expected;
  run_layout({.blueprint = Blueprint(one_rank(config)), .batches = others, .num_steps = 4}, expected);
  const std::int64_t steps[] = {2, 3, 4, 6};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(actual.losses()[static_cast<std::size_t>(steps[i] - 1)], expected.losses()[i],
                0.002 * expected.losses()[i])
        << i;
    EXPECT_LT(mean_difference(actual.weights(steps[i]), expected.weights(static_cast<std::int64_t>(i) + 1)),
              0.05 * config.optimizer.lr)
        << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, Overflow, ::testing::ValuesIn(float16_layouts), name_of_layout);

}  // namespace
}  // namespace echelon::testing
