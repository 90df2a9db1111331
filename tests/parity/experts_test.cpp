// Which experts tokens choose does not depend on the layout: every token of a step chooses what it chooses on one rank,
// and no choice is so close that rounding could decide it.
#include "ops/forwarding_ops.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace echelon::testing {
namespace {

/// The router's logits for a token, and what it chose.
struct Routed {
  std::vector<double> logits;
  std::vector<std::int32_t> experts;
};

/// What all ranks routed; of tensor-parallel ranks that route the same tokens, the first.
struct RoutedTokens {
  bool each_rank_routes_its_own = false;
  std::mutex mutex;
  std::vector<Routed> tokens;
};

class RouterWatch : public ForwardingOps {
 public:
  RouterWatch(Ops& inner, RoutedTokens* routed) : ForwardingOps(inner), routed_(routed) {}

  void perform(const Operation& operation) override {
    inner().perform(operation);
    const auto* args = operation.get_if<ChooseExpertsArgs>();
    const bool is_router = args != nullptr && args->logits.size(1) > 1;  // and no gate of a shared expert
    if (is_router && routed_ != nullptr) record(*args);
  }

 private:
  void record(const ChooseExpertsArgs& args) {
    inner().publish();
    const std::int64_t E = args.logits.size(1), k = args.experts.size(1);
    const std::lock_guard lock(routed_->mutex);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      const double* const logits = args.logits.as<double>() + n * E;
      const std::int32_t* const experts = args.experts.as<std::int32_t>() + n * k;
      routed_->tokens.push_back({{logits, logits + E}, {experts, experts + k}});
    }
  }

  RoutedTokens* routed_;
};

class WatchedRank : public RankInterposer {
 public:
  WatchedRank(Ops& ops, Mesh& mesh, RoutedTokens& routed)
      : ops_(ops, routed.each_rank_routes_its_own || mesh.coordinate(Axis::tp) == 0 ? &routed : nullptr), mesh_(mesh) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  RouterWatch ops_;
  Mesh& mesh_;
};

/// Of the first step, sorted by logits: tokens are elsewhere in another layout.
std::vector<Routed> routed_tokens(RunConfig config) {
  config.training.steps = config.lr_scheduler.warmup_steps = 1;
  RoutedTokens routed;
  routed.each_rank_routes_its_own = !divides_experts_as_dense(config.parallelism);
  RunOptions options;
  options.interpose = [&](Ops& ops, Mesh& mesh) { return std::make_unique<WatchedRank>(ops, mesh, routed); };
  (void)run_training(config, options);
  std::ranges::sort(routed.tokens, {}, &Routed::logits);
  return std::move(routed.tokens);
}

/// Between the last that was chosen and the best that was not.
double gap_of(const Routed& token) {
  double last = INFINITY, best = -INFINITY;
  for (std::size_t e = 0; e < token.logits.size(); ++e) {
    const bool is_chosen = std::ranges::find(token.experts, static_cast<std::int32_t>(e)) != token.experts.end();
    if (is_chosen)
      last = std::min(last, token.logits[e]);
    else
      best = std::max(best, token.logits[e]);
  }
  return last - best;
}

class Choices : public ::testing::TestWithParam<Layout> {};

// Claim (parity): Every token of a mixture of experts chooses the same experts on every layout.
// Bound: equal, with a gap between the last chosen score and the next at least 100 times as large
//   as any difference of a score.
// Tests: Choices
TEST_P(Choices, AreThoseOfOneRank) {
  const RunConfig config = config_of(GetParam());
  const std::vector<Routed> actual = routed_tokens(config), expected = routed_tokens(one_rank(config));
  ASSERT_EQ(actual.size(), expected.size());
  double difference = 0, gap = INFINITY;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].experts, expected[i].experts) << "token " << i;
    for (std::size_t e = 0; e < expected[i].logits.size(); ++e)
      difference = std::max(difference, std::abs(actual[i].logits[e] - expected[i].logits[e]));
    gap = std::min(gap, gap_of(expected[i]));
  }
  RecordProperty("smallest_gap", fmt::format("{:.3g}", gap));
  EXPECT_GE(gap, 100 * difference) << "rounding may decide a choice: " << gap << ", " << difference;
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

std::vector<Layout> layouts_without_padding() {
  std::vector<Layout> layouts = expert_rows();
  for (const Layout& layout : expert_parallel_rows()) layouts.push_back(layout);
  std::erase_if(layouts, [](const Layout& layout) { return layout.cp > 1; });  // padded tokens are routed too
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Experts, Choices, ::testing::ValuesIn(layouts_without_padding()),
                         [](const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); });

}  // namespace
}  // namespace echelon::testing
