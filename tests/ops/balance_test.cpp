// The losses of a router against their formulas, and their gradients against central differences in float64.
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {
namespace {

constexpr std::int64_t N = 12, E = 5, k = 2, T = 4;  // three sequences

struct Balanced {
  Numbers logits = Numbers::random(DType::float64, {N, E}, 1), experts = Numbers(DType::int32, {N, k}),
          weights = Numbers(DType::float64, {N, k}), gradient = Numbers(DType::float64, {N, E}),
          losses = Numbers(DType::float64, {num_router_losses}), targets = Numbers(DType::float64, {1}),
          counts = Numbers(DType::float64, {N / T, E}), loads = Numbers(DType::float64, {E});
  ReferenceOps ops;

  explicit Balanced(ExpertScores scores) {
    for (std::int64_t e = 0; e < E; ++e) loads.set(e, static_cast<double>(e * e + 1));
    targets.set(0, 6);
    ops.choose_experts({.logits = logits, .experts = experts, .weights = weights, .rule = {.scores = scores}});
    ops.count_experts({.experts = experts, .counts = counts, .tokens_per_sequence = T});
  }

  void compute(const RouterLosses& rule, ExpertScores scores) {
    for (std::int64_t i = 0; i < num_router_losses; ++i) losses.set(i, 0);
    ops.router_losses({.logits = logits,
                       .experts = experts,
                       .gradient = gradient,
                       .losses = losses,
                       .num_targets = targets,
                       .counts = counts,
                       .loads = loads,
                       .rule = rule,
                       .scores = scores,
                       .tokens_per_sequence = T});
  }

  /// The normalised scores of token n.
  [[nodiscard]] std::vector<double> probabilities(std::int64_t n, ExpertScores scores) const {
    std::vector<double> p;
    for (std::int64_t e = 0; e < E; ++e) {
      const double z = logits.get(n * E + e);
      p.push_back(scores == ExpertScores::softmax ? std::exp(z) : 1 / (1 + std::exp(-z)));
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& each : p) each /= sum;
    return p;
  }
};

RouterLosses rule_of(double sequence, double global, double z) {
  return {.sequence = sequence,
          .global = global,
          .z = z,
          .tokens_per_sequence = T,
          .num_tokens = N,
          .expected_targets = 24};  // four times as many as there are
}

TEST(RouterLosses, AreThoseOfTheirFormulas) {
  for (const ExpertScores scores : {ExpertScores::softmax, ExpertScores::sigmoid}) {
    Balanced of(scores);
    of.compute(rule_of(0.5, 0.25, 0.125), scores);
    double sequences = 0, global = 0, z = 0, loads = 0;
    for (std::int64_t e = 0; e < E; ++e) loads += of.loads.get(e);
    for (std::int64_t s = 0; s < N / T; ++s)
      for (std::int64_t e = 0; e < E; ++e) {
        double rows = 0, mean = 0;
        for (std::int64_t n = s * T; n < (s + 1) * T; ++n) {
          mean += of.probabilities(n, scores)[static_cast<std::size_t>(e)] / T;
          for (std::int64_t j = 0; j < k; ++j) rows += of.experts.get(n * k + j) == static_cast<double>(e) ? 1 : 0;
        }
        sequences += E * rows / (k * T) * mean / (N / T);
        global += E * of.loads.get(e) / loads * mean / (N / T);
      }
    for (std::int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (std::int64_t e = 0; e < E; ++e) sum += std::exp(of.logits.get(n * E + e));
      z += std::log(sum) * std::log(sum) / N;
    }
    EXPECT_NEAR(of.losses.get(0), 0.5 * sequences, 1e-14);
    EXPECT_NEAR(of.losses.get(1), 0.25 * global, 1e-14);
    EXPECT_NEAR(of.losses.get(2), 0.125 * z, 1e-14);
  }
}

// The step divides gradients by the targets that there are, and the losses of a router must not depend on those.
TEST(RouterLosses, HaveGradientsThatTheStepMakesTheirOwn) {
  for (const ExpertScores scores : {ExpertScores::softmax, ExpertScores::sigmoid})
    for (const RouterLosses& rule : {rule_of(0.5, 0, 0), rule_of(0, 0.5, 0), rule_of(0, 0, 0.5), rule_of(1, 2, 3)}) {
      Balanced of(scores);
      of.compute(rule, scores);
      const Numbers gradient(DType::float64, {N, E});
      for (std::int64_t i = 0; i < N * E; ++i)
        const_cast<Numbers&>(gradient).set(i, of.gradient.get(i) * rule.expected_targets / of.targets.get(0));
      const auto loss = [&] {
        of.compute(rule, scores);
        return of.losses.get(0) + of.losses.get(1) + of.losses.get(2);
      };
      expect_gradient(of.logits, gradient, loss, "logits");
    }
}

TEST(RouterLosses, AreZeroInAStepWithoutTargets) {
  Balanced of(ExpertScores::softmax);
  of.targets.set(0, 0);
  of.compute(rule_of(1, 1, 1), ExpertScores::softmax);
  for (std::int64_t i = 0; i < num_router_losses; ++i) EXPECT_EQ(of.losses.get(i), 0);
  for (std::int64_t i = 0; i < N * E; ++i) EXPECT_EQ(of.gradient.get(i), 0);
}

// Before the first step, all loads are zero and stand for even ones: f = 1 / E, and the loss is its least.
TEST(RouterLosses, TakeTheLoadsBeforeTheFirstStepForEven) {
  Balanced of(ExpertScores::softmax);
  for (std::int64_t e = 0; e < E; ++e) of.loads.set(e, 0);
  of.compute(rule_of(0, 2, 0), ExpertScores::softmax);
  EXPECT_NEAR(of.losses.get(1), 2, 1e-14);
  for (std::int64_t i = 0; i < N * E; ++i) EXPECT_NEAR(of.gradient.get(i), 0, 1e-16);
}

// Exactly the mean is neither above nor below it, also where E does not divide the sum.
TEST(BalanceExperts, MovesTheBiasTowardsFewerRows) {
  const Numbers counts(DType::float64, {2, 3}), factor(DType::float64, {1}), bias(DType::float32, {2, 3});
  const std::vector<double> rows = {4, 4, 4, 5, 1, 3};
  for (std::size_t i = 0; i < rows.size(); ++i) const_cast<Numbers&>(counts).set(static_cast<std::int64_t>(i), rows[i]);
  ReferenceOps().balance_experts({.counts = counts, .factor = factor, .bias = bias, .rate = 0.5});
  const std::vector<double> expected = {0, 0, 0, -0.5, 0.5, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bias.get(static_cast<std::int64_t>(i)), expected[i]);
}

}  // namespace
}  // namespace echelon
