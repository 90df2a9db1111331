// The router on every backend: ties, NaN, infinite and equal logits, groups, biases, one expert and thousands, and rows
// with their weights.
#include "conformance.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace echelon {
namespace {

struct RouterCase {
  std::int64_t N, E, k;
  RouterRule rule;
  bool has_bias = false;
};

std::vector<RouterCase> router_cases() {
  constexpr ExpertScores sigmoid = ExpertScores::sigmoid;
  return {{0, 4, 2, {}},
          {3, 1, 1, {.scores = sigmoid}},
          {9, 5, 5, {.normalises = true}},
          {40, 8, 2, {.normalises = true, .scale = 2.5}},
          {300, 64, 8, {}},
          {7, 2050, 33, {.scores = sigmoid, .normalises = true}},
          {40, 24, 3, {.num_groups = 4, .num_chosen_groups = 2}},
          {40, 60, 6, {.scores = sigmoid, .normalises = true, .num_groups = 30, .num_chosen_groups = 4}, true},
          {60,
           64,
           8,
           {.scores = sigmoid,
            .normalises = true,
            .scale = 2.5,
            .num_groups = 8,
            .num_chosen_groups = 4,
            .group_score = GroupScore::sum_of_two},
           true},
          {20, 12, 4, {.num_groups = 3, .num_chosen_groups = 2, .group_score = GroupScore::sum_of_two}},
          {40, 9, 3, {.normalises = true}, true}};
}

std::string name_of(const RouterCase& of) {
  return fmt::format("{} {} {}, {} groups", of.N, of.E, of.k, of.rule.num_groups);
}

/// Rounded to quarters, so that a token has many ties.
Numbers logits_of(const RouterCase& of, DType dtype) {
  Numbers logits = Numbers::random(dtype, {of.N, of.E}, 1);
  for (std::int64_t i = 0; i < logits.count(); ++i) logits.set(i, std::round(4 * logits.get(i)) / 4);
  return logits;
}

TEST_P(OpsConformance, ChooseExperts) {
  for (const RouterCase& of : router_cases()) {
    Numbers bias = Numbers::random(DType::float32, {of.E}, 2);
    for (std::int64_t e = 0; e < of.E; ++e) bias.set(e, std::round(2 * bias.get(e)) / 2);
    const Tensors tensors = {logits_of(of, sums), bias, Numbers(DType::int32, {of.N, of.k}), statistics({of.N, of.k})};
    compare("choose_experts " + name_of(of), tensors, [&](Ops& ops, Tensors& t) {
      ops.choose_experts({.logits = t[0],
                          .experts = t[2],
                          .weights = t[3],
                          .bias = of.has_bias ? t[1].tensor() : Tensor(),
                          .rule = of.rule});
    });
  }
}

TEST_P(OpsConformance, ChooseExpertsBackward) {
  for (const RouterCase& of : router_cases())
    for (const DType gradient : gradient_dtypes()) {
      if (gradient != dtype) continue;
      const Tensors tensors = {logits_of(of, sums), Numbers(DType::int32, {of.N, of.k}), statistics({of.N, of.k}),
                               Numbers::random(sums, {of.N, of.k}, 3), random({of.N, of.E}, 4)};
      compare("choose_experts_backward " + name_of(of), tensors, [&](Ops& ops, Tensors& t) {
        ops.choose_experts({.logits = t[0], .experts = t[1], .weights = t[2], .rule = of.rule});
        ops.choose_experts_backward(
            {.logits = t[0], .experts = t[1], .dweights = t[3], .dlogits = t[4], .rule = of.rule});
      });
    }
}

// No index leaves the experts and none comes twice, whatever the logits are; a token with a NaN has NaN as weights.
TEST_P(OpsConformance, ChooseExpertsAmongNaN) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> rows = {{nan, nan, nan, nan},
                                                 {nan, 1, nan, 0},
                                                 {-infinity, -infinity, -infinity, -infinity},
                                                 {infinity, infinity, 0, infinity},
                                                 {0, 0, 0, 0},
                                                 {-0.0, 0, nan, -1}};
  const auto N = static_cast<std::int64_t>(rows.size());
  for (const ExpertScores scores : {ExpertScores::softmax, ExpertScores::sigmoid})
    for (const std::int64_t num_groups : {1, 2}) {
      Tensors tensors = {Numbers(sums, {N, 4}), Numbers(DType::int32, {N, 2}), statistics({N, 2})};
      for (std::int64_t i = 0; i < 4 * N; ++i)
        tensors[0].set(i, rows[static_cast<std::size_t>(i / 4)][static_cast<std::size_t>(i % 4)]);
      const Tensors after = run(tensors, [&](Ops& ops, Tensors& t) {
        ops.choose_experts({.logits = t[0],
                            .experts = t[1],
                            .weights = t[2],
                            .rule = {.scores = scores, .num_groups = num_groups, .num_chosen_groups = 1}});
      });
      const std::vector<std::vector<double>> expected = {
          {0, 1}, {1, num_groups == 1 ? 3.0 : 0.0}, {0, 1}, {0, 1}, {0, 1}, {0, 1}};
      for (std::int64_t n = 0; n < N; ++n) {
        const double first = after[1].get(2 * n), second = after[1].get(2 * n + 1);
        EXPECT_EQ((std::vector{first, second}), expected[static_cast<std::size_t>(n)]) << "token " << n;
        const bool has_nan = n == 0 || n == 1 || n == 5;
        if (has_nan) {
          EXPECT_TRUE(std::isnan(after[2].get(2 * n)) && std::isnan(after[2].get(2 * n + 1))) << n;
        } else if (n == 4) {
          EXPECT_EQ(after[2].get(2 * n), scores == ExpertScores::softmax ? 0.25 : 0.5);
        }
      }
    }
}

TEST_P(OpsConformance, RowsWithWeights) {
  struct Case {
    std::int64_t N, k, D;
  };
  for (const auto& [N, k, D] : {Case{0, 2, 16}, {1, 1, 3}, {9, 2, 33}, {4, 6, 600}, {430, 2, 40}}) {
    const std::string sizes = fmt::format(" {} {} {}", N, k, D);
    std::vector<std::int32_t> order;  // every row once, but for two that nobody has
    const std::int64_t R = N * k;
    for (std::int64_t i = 0; i < R; ++i)
      order.push_back(i % 400 == 5 ? -1 : static_cast<std::int32_t>((i * 7 + 3) % (R % 7 == 0 ? R + 1 : R)));
    for (std::int32_t& slot : order)
      if (slot >= R) slot = -1;
    const Numbers slots = Numbers::tokens(order), x = random({R, D}, 1), dy = random({R, D}, 2),
                  weights = Numbers::random(sums, {N, k}, 3), dweights = Numbers::random(sums, {N, k}, 4);
    const auto slots_of = [=](const Numbers& t) { return t.tensor().reshaped({N, k}); };
    compare("weight_rows" + sizes, {x, slots, weights, dy}, [&](Ops& ops, Tensors& t) {
      ops.weight_rows({.x = t[0], .slots = slots_of(t[1]), .weights = t[2], .y = t[3]});
      ops.weight_rows({.x = t[0], .slots = slots_of(t[1]), .weights = t[2], .y = t[0]});
    });
    compare("weight_rows_backward" + sizes, {dy, x, slots, weights, random({R, D}, 5), dweights},
            [&](Ops& ops, Tensors& t) {
              ops.weight_rows_backward(
                  {.dy = t[0], .x = t[1], .slots = slots_of(t[2]), .weights = t[3], .dx = t[4], .dweights = t[5]});
            });
    compare("weight_rows_backward in place" + sizes, {dy, x, slots, weights, dweights}, [&](Ops& ops, Tensors& t) {
      ops.weight_rows_backward(
          {.dy = t[0], .x = t[1], .slots = slots_of(t[2]), .weights = t[3], .dx = t[0], .dweights = t[4], .y = t[1]});
    });
  }
}

}  // namespace
}  // namespace echelon
