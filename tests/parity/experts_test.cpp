// Which experts tokens choose does not depend on the layout: every token of a step chooses what it chooses on one rank,
// and no choice is so close that rounding could decide it.
#include "parity/choice_gaps.h"
#include "parity/layout.h"
#include "parity/router_choices.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

class Choices : public ::testing::TestWithParam<Layout> {
 protected:
  static inline ChoiceGaps gaps;
  static void SetUpTestSuite() { gaps = {}; }
  static void TearDownTestSuite() { fmt::print("smallest gaps of choices: {}\n", text_of(gaps)); }
};

// Claim (parity): Every token of a mixture of experts chooses the same experts on every layout.
// Bound: equal, with gaps from the last chosen score, group and row of a capacity to the next at
//   least 100 times any difference of one.
// Tests: Choices
TEST_P(Choices, AreThoseOfOneRank) {
  RunConfig config = config_of(GetParam());
  config.training.steps = config.lr_scheduler.warmup_steps = 2;
  const RouterChoices actual(config, Targets::unequal), expected(one_rank(config), Targets::unequal);
  EXPECT_GT(expect_equal_choices(actual.recorded(), expected.recorded(), config), 0);
  const ChoiceGaps of_layout = gaps_of(actual.recorded(), expected.recorded(), config);
  expect_clear(of_layout);
  gaps.meet(of_layout);
}

// Gradients of router losses are divided by the targets of the step and multiplied by the loss scale, and both are
// taken back: of the same batch with other targets, they and the counts are the same.
TEST(RouterLosses, DoNotDependOnTargets) {
  RunConfig config = config_of({.shard = 2, .cp = 2, .seq_len = 17, .experts = 5, .router_losses = true});
  config.training.steps = config.lr_scheduler.warmup_steps = 1;
  const auto sums_of = [&](Targets targets) { return run_training(config, {.targets = targets})->router_sums.at(0); };
  const std::vector<double> all = sums_of(Targets::all), few = sums_of(Targets::of_one_sequence);
  ASSERT_EQ(all.size(), few.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], few[i], 1e-12 * (1 + all[i])) << i;
  config.training.steps = 10;
  const RunOptions options = {.targets = Targets::of_one_sequence};
  expect_equal(*run_training(config, options), *run_training(one_rank(config), options), 1e-11, 1e-9,
               config.optimizer.lr);
}

// Padding has no choice, no row and no loss: that of packed data, and that of ranks whose parts of a sequence are not
// equally long.
TEST(RouterLosses, CountTokensAlone) {
  RunConfig config =
      config_of({.shard = 2, .documents = true, .cp = 3, .seq_len = 17, .experts = 5, .router_losses = true});
  config.data.packing = Packing::best_fit;
  config.training.steps = 3;
  const auto actual = run_training(config), expected = run_training(one_rank(config));
  expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
  double rows = 0, tokens = 0;
  const FormulaBatches batches(config, Targets::all);
  for (std::int64_t sequence = 0; sequence < config.training.global_batch_size; ++sequence)
    tokens += static_cast<double>(batches.num_tokens(sequence, config.training.seq_len));
  EXPECT_LT(tokens, static_cast<double>(config.training.global_batch_size * config.training.seq_len));
  for (std::int64_t e = 0; e < 5; ++e) rows += actual->router_sums[0][static_cast<std::size_t>(e)];
  EXPECT_EQ(rows, 2 * tokens);
}

// A loss scale of a power of two moves no digit, and a step that is skipped leaves the loads of the step before: as
// long as none was made, those of the global loss are even, and it is its coefficient times the layers.
TEST(RouterLosses, DoNotDependOnTheLossScale) {
  RunConfig config = config_of({.experts = 5, .router_losses = true});
  config.training.steps = 4;
  config.training.dtype = DType::float16;
  const auto run_with = [&](double scale) {
    config.grad_scaler = {.init_scale = scale, .backoff_factor = 0.5, .growth_interval = 1000};
    return run_training(config);
  };
  const auto small = run_with(256), large = run_with(1024), too_large = run_with(0x1p40);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(small->losses[step], large->losses[step], 1e-3);
    const std::vector<double>&sums = too_large->router_sums[step], &first = too_large->router_sums[0];
    EXPECT_EQ(sums.size(), first.size());
    const RouterSums columns = {5};
    for (std::size_t row = 0; row < sums.size(); row += static_cast<std::size_t>(columns.num_columns()))
      EXPECT_NEAR(sums[row + static_cast<std::size_t>(columns.losses()) + 1], 0.3, 1e-6) << step;
  }
  EXPECT_GT(std::abs(small->router_sums[1][6] - 0.3), 1e-4) << "uneven loads raise the loss";
}

std::string row_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }

INSTANTIATE_TEST_SUITE_P(Experts, Choices, ::testing::ValuesIn(expert_rows()), row_name);
INSTANTIATE_TEST_SUITE_P(ExpertParallel, Choices, ::testing::ValuesIn(expert_parallel_rows()), row_name);
INSTANTIATE_TEST_SUITE_P(Capacity, Choices, ::testing::ValuesIn(capacity_rows()), row_name);

}  // namespace
}  // namespace echelon::testing
