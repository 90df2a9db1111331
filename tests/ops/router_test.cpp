// The router's gradients against central differences in float64, its weights against those of a formula, and its choice
// against sorting.
#include "base/error.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"
#include "ops/trace/trace_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {
namespace {

const std::vector<RouterRule> rules = {{},
                                       {.normalises = true, .scale = 1.5},
                                       {.scores = ExpertScores::sigmoid},
                                       {.scores = ExpertScores::sigmoid, .normalises = true, .scale = 2.5},
                                       {.normalises = true, .num_groups = 3, .num_chosen_groups = 2},
                                       {.scores = ExpertScores::sigmoid,
                                        .normalises = true,
                                        .num_groups = 3,
                                        .num_chosen_groups = 2,
                                        .group_score = GroupScore::sum_of_two}};

TEST(Router, GradientsOfWeights) {
  ReferenceOps ops;
  const std::int64_t N = 4, E = 6, k = 2;
  for (const RouterRule& rule : rules) {
    Numbers logits = Numbers::random(DType::float64, {N, E}, 1);
    const Numbers dweights = Numbers::random(DType::float64, {N, k}, 2), weights(DType::float64, {N, k}),
                  dlogits(DType::float64, {N, E}), experts(DType::int32, {N, k});
    const auto loss = [&] {
      ops.choose_experts({.logits = logits, .experts = experts, .weights = weights, .rule = rule});
      double sum = 0;
      for (std::int64_t i = 0; i < N * k; ++i) sum += weights.get(i) * dweights.get(i);
      return sum;
    };
    loss();
    ops.choose_experts_backward(
        {.logits = logits, .experts = experts, .dweights = dweights, .dlogits = dlogits, .rule = rule});
    expect_gradient(logits, dlogits, loss, "dlogits");
  }
}

// DeepSeek-V3's rule, with sorts: groups by the sum of their two best of score + bias, then experts, both stably.
TEST(Router, ChoosesWhatAStableSortChooses) {
  const std::int64_t N = 200, E = 12, k = 3, groups = 4, chosen = 2;
  Numbers logits = Numbers::random(DType::float64, {N, E}, 1), bias = Numbers::random(DType::float32, {E}, 2);
  for (std::int64_t i = 0; i < N * E; ++i) logits.set(i, std::round(2 * logits.get(i)));
  for (std::int64_t e = 0; e < E; ++e) bias.set(e, e % 3 == 0 ? 0.25 : 0);
  const Numbers experts(DType::int32, {N, k}), weights(DType::float64, {N, k});
  ReferenceOps().choose_experts({.logits = logits,
                                 .experts = experts,
                                 .weights = weights,
                                 .bias = bias,
                                 .rule = {.scores = ExpertScores::sigmoid,
                                          .normalises = true,
                                          .scale = 2.5,
                                          .num_groups = groups,
                                          .num_chosen_groups = chosen,
                                          .group_score = GroupScore::sum_of_two}});
  for (std::int64_t n = 0; n < N; ++n) {
    const auto score = [&](std::int64_t e) { return 1 / (1 + std::exp(-logits.get(n * E + e))); };
    const auto value = [&](std::int64_t e) { return score(e) + bias.get(e); };
    const auto sorted = [](std::vector<std::int64_t> of, const auto& by) {
      std::ranges::stable_sort(of, [&](std::int64_t a, std::int64_t b) { return by(a) > by(b); });
      return of;
    };
    std::vector<std::int64_t> all_groups(groups), open;
    std::iota(all_groups.begin(), all_groups.end(), 0);
    const auto of_group = [&](std::int64_t g) {
      std::vector<std::int64_t> members(E / groups);
      std::iota(members.begin(), members.end(), g * (E / groups));
      return sorted(members, value);
    };
    std::vector<std::int64_t> best =
        sorted(all_groups, [&](std::int64_t g) { return value(of_group(g)[0]) + value(of_group(g)[1]); });
    best.resize(chosen);
    std::ranges::sort(best);
    for (const std::int64_t g : best)
      for (std::int64_t e = g * (E / groups); e < (g + 1) * (E / groups); ++e) open.push_back(e);
    open = sorted(open, value);
    const double sum = score(open[0]) + score(open[1]) + score(open[2]);
    for (std::int64_t j = 0; j < k; ++j) {
      EXPECT_EQ(experts.get(n * k + j), static_cast<double>(open[static_cast<std::size_t>(j)])) << n << ' ' << j;
      EXPECT_NEAR(weights.get(n * k + j), 2.5 * score(open[static_cast<std::size_t>(j)]) / sum, 1e-14);
    }
  }
}

TEST(Router, RefusesGroupsThatCannotBe) {
  TraceOps ops;
  const auto choose = [&](std::int64_t E, std::int64_t k, const RouterRule& rule) {
    ops.choose_experts({.logits = {nullptr, DType::float32, {3, E}},
                        .experts = {nullptr, DType::int32, {3, k}},
                        .weights = {nullptr, DType::float32, {3, k}},
                        .rule = rule});
  };
  EXPECT_NO_THROW(choose(8, 2, {.num_groups = 4, .num_chosen_groups = 1}));
  EXPECT_THROW(choose(8, 9, {}), Failure);
  EXPECT_THROW(choose(8, 3, {.num_groups = 4, .num_chosen_groups = 1}), Failure);
  EXPECT_THROW(choose(9, 2, {.num_groups = 2}), Failure);
  EXPECT_THROW(choose(8, 2, {.num_groups = 2, .num_chosen_groups = 3}), Failure);
  EXPECT_THROW(choose(8, 2, {.num_groups = 8, .num_chosen_groups = 4, .group_score = GroupScore::sum_of_two}), Failure);
}

}  // namespace
}  // namespace echelon
