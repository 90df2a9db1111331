// Which experts tokens choose does not depend on the layout: every token of a step chooses what it chooses on one rank,
// and no choice is so close that rounding could decide it.
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

/// What all ranks routed, of each group of tensor-parallel ranks the first.
struct RoutedTokens {
  std::mutex mutex;
  std::vector<Routed> tokens;
};

class RouterWatch : public Ops {
 public:
  RouterWatch(Ops& inner, RoutedTokens* routed) : inner_(inner), routed_(routed) {}

  void perform(const Operation& operation) override {
    inner_.perform(operation);
    if (const auto* args = operation.get_if<ChooseExpertsArgs>(); args != nullptr && routed_ != nullptr) record(*args);
  }
  void upload(Tensor out, const void* host) override { inner_.upload(out, host); }
  void download(void* host, Tensor x) override { inner_.download(host, x); }
  void publish() override { inner_.publish(); }

 private:
  void record(const ChooseExpertsArgs& args) {
    inner_.publish();
    const std::int64_t E = args.logits.size(1), k = args.experts.size(1);
    const std::lock_guard lock(routed_->mutex);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      const double* const logits = args.logits.as<double>() + n * E;
      const std::int32_t* const experts = args.experts.as<std::int32_t>() + n * k;
      routed_->tokens.push_back({{logits, logits + E}, {experts, experts + k}});
    }
  }

  Ops& inner_;
  RoutedTokens* routed_;
};

class WatchedRank : public RankInterposer {
 public:
  WatchedRank(Ops& ops, Mesh& mesh, RoutedTokens& routed)
      : ops_(ops, mesh.coordinate(Axis::tp) == 0 ? &routed : nullptr), mesh_(mesh) {}
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

std::vector<Layout> layouts_without_padding() {
  std::vector<Layout> layouts = expert_rows();
  std::erase_if(layouts, [](const Layout& layout) { return layout.cp > 1; });  // padded tokens are routed too
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Experts, Choices, ::testing::ValuesIn(layouts_without_padding()),
                         [](const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); });

}  // namespace
}  // namespace echelon::testing
