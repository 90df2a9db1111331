// What evens out the loads of experts, on every backend: counts over sequences that start anywhere, tokens without a
// choice, losses of both kinds of scores, and a bias.
#include "conformance.h"

#include <fmt/format.h>

#include <limits>

namespace echelon {
namespace {

struct BalanceCase {
  std::int64_t N, E, k, first_token, tokens_per_sequence;
  [[nodiscard]] std::int64_t num_sequences() const {
    return (first_token + N + tokens_per_sequence - 1) / tokens_per_sequence;
  }
};

std::vector<BalanceCase> balance_cases() {
  return {{1, 1, 1, 0, 1},      {12, 5, 2, 0, 4},     {9, 7, 3, 5, 6},
          {300, 64, 8, 0, 300}, {130, 40, 2, 70, 64}, {3, 2050, 9, 0, 2}};
}

std::string name_of(const BalanceCase& of) {
  return fmt::format(" {} {} {} from {}", of.N, of.E, of.k, of.first_token);
}

/// Each token has different ones; every seventh token has none.
Numbers experts_of(const BalanceCase& of) {
  std::vector<std::int32_t> experts;
  for (std::int64_t n = 0; n < of.N; ++n)
    for (std::int64_t j = 0; j < of.k; ++j)
      experts.push_back(n % 7 == 6 ? -1 : static_cast<std::int32_t>((n * n * 5 + j) % of.E));
  return Numbers::tokens(experts);
}

Tensor of_tokens(const Numbers& experts, const BalanceCase& of) { return experts.tensor().reshaped({of.N, of.k}); }

TEST_P(OpsConformance, CountExperts) {
  for (const BalanceCase& of : balance_cases()) {
    Numbers weights = Numbers::random(sums, {of.N, of.k}, 1);
    for (std::int64_t n = 0; n < of.N; n += 3) weights.set(n * of.k, std::numeric_limits<double>::quiet_NaN());
    const Tensors tensors = {experts_of(of), Numbers::random(DType::float64, {of.num_sequences(), of.E}, 2),
                             Numbers::random(DType::float64, {1}, 3)};
    compare("count_experts" + name_of(of), tensors, [&](Ops& ops, Tensors& t) {
      ops.count_experts({.experts = of_tokens(t[0], of),
                         .counts = t[1],
                         .first_token = of.first_token,
                         .tokens_per_sequence = of.tokens_per_sequence});
    });
    const Tensors after =
        run({experts_of(of), Numbers(DType::float64, {1, of.E}), Numbers(DType::float64, {1}), weights},
            [&](Ops& ops, Tensors& t) {
              ops.count_experts({.experts = of_tokens(t[0], of),
                                 .counts = t[1],
                                 .weights = t[3],
                                 .num_nan = t[2],
                                 .tokens_per_sequence = of.N});
            });
    EXPECT_EQ(after[2].get(0), static_cast<double>((of.N + 2) / 3));
    Numbers slots(DType::int32, {of.N, of.k});
    for (std::int64_t i = 0; i < of.N * of.k; i += 2) slots.tensor().as<std::int32_t>()[i] = -1;
    compare("count_experts that drop rows" + name_of(of),
            {experts_of(of), Numbers(DType::float64, {1, of.E}), Numbers(DType::float64, {1}), slots},
            [&](Ops& ops, Tensors& t) {
              ops.count_experts({.experts = of_tokens(t[0], of),
                                 .counts = t[1],
                                 .slots = t[3],
                                 .num_dropped = t[2],
                                 .tokens_per_sequence = of.N});
            });
    double rows = 0;
    for (std::int64_t e = 0; e < of.E; ++e) rows += after[1].get(e);
    EXPECT_EQ(rows, static_cast<double>(of.k * (of.N - of.N / 7)));
  }
}

TEST_P(OpsConformance, RouterLosses) {
  const std::vector<RouterLosses> rules = {
      {.sequence = 0.3}, {.global = 0.2}, {.z = 0.1}, {.sequence = 0.3, .global = 0.2, .z = 0.1}};
  for (const BalanceCase& of : balance_cases())
    for (RouterLosses rule : rules)
      for (const ExpertScores scores : {ExpertScores::softmax, ExpertScores::sigmoid})
        for (const double num_targets : {0.0, 3.0}) {
          rule.tokens_per_sequence = static_cast<double>(of.tokens_per_sequence);
          rule.num_tokens = static_cast<double>(of.N);
          rule.expected_targets = 4;
          Numbers targets(DType::float64, {1}), scale(DType::float64, {1}), loads(DType::float64, {of.E}),
              counts(DType::float64, {of.num_sequences(), of.E});
          targets.set(0, num_targets);
          scale.set(0, 8);
          // Even loads alone leave nothing but rounding of a gradient.
          const bool is_even = of.N % 2 == 1 && rule.z != 0;
          for (std::int64_t e = 0; e < of.E; ++e) loads.set(e, is_even ? 0 : static_cast<double>(e % 3));
          for (std::int64_t i = 0; i < counts.count(); ++i) counts.set(i, static_cast<double>(i * i % 5));
          const Tensors tensors = {Numbers::random(sums, {of.N, of.E}, 1, 2.0),
                                   experts_of(of),
                                   statistics({of.N, of.E}),
                                   Numbers::random(DType::float64, {num_router_losses}, 2),
                                   targets,
                                   counts,
                                   loads,
                                   scale};
          compare("router_losses" + name_of(of), tensors, [&](Ops& ops, Tensors& t) {
            ops.router_losses({.logits = t[0],
                               .experts = of_tokens(t[1], of),
                               .gradient = t[2],
                               .losses = t[3],
                               .num_targets = t[4],
                               .counts = rule.sequence == 0 ? Tensor() : t[5].tensor(),
                               .loads = rule.global == 0 ? Tensor() : t[6].tensor(),
                               .loss_scale = of.k % 2 == 0 ? t[7].tensor() : Tensor(),
                               .rule = rule,
                               .scores = scores,
                               .first_token = of.first_token,
                               .tokens_per_sequence = of.tokens_per_sequence});
          });
        }
}

TEST_P(OpsConformance, BalanceExperts) {
  for (const double factor : {1.0, std::numeric_limits<double>::quiet_NaN()})
    for (const auto& [M, E] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 4}, {2, 300}}) {
      Numbers counts(DType::float64, {M, E + 3}), scalar(DType::float64, {1});
      for (std::int64_t i = 0; i < counts.count(); ++i) counts.set(i, static_cast<double>(i * 7 % 4));
      scalar.set(0, factor);
      const Tensors tensors = {counts, scalar, Numbers::random(DType::float64, {M, E}, 1),
                               Numbers::random(DType::float32, {M, E}, 2)};
      for (const auto& [has_loads, has_bias] : {std::pair{true, true}, {true, false}, {false, true}})
        compare("balance_experts", tensors, [&](Ops& ops, Tensors& t) {
          ops.balance_experts({.counts = t[0],
                               .factor = t[1],
                               .loads = has_loads ? t[2].tensor() : Tensor(),
                               .bias = has_bias ? t[3].tensor() : Tensor(),
                               .rate = 0.001});
        });
    }
}

// A token without a choice has no gradient, and what is added to one is added before it is rounded.
TEST_P(OpsConformance, ChooseExpertsForRealTokensAlone) {
  const std::int64_t N = 11, E = 6, k = 2;
  std::vector<std::int32_t> routed;
  for (std::int64_t n = 0; n < N; ++n) routed.push_back(n % 4 == 1 ? 0 : 1);
  const Tensors tensors = {Numbers::random(sums, {N, E}, 1), Numbers(DType::int32, {N, k}),    statistics({N, k}),
                           Numbers::tokens(routed),          Numbers::random(sums, {N, k}, 2), random({N, E}, 3),
                           Numbers::random(sums, {N, E}, 4)};
  for (const RouterRule& rule : {RouterRule{.normalises = true}, RouterRule{.scores = ExpertScores::sigmoid}})
    compare("choose_experts of real tokens", tensors, [&](Ops& ops, Tensors& t) {
      ops.choose_experts({.logits = t[0], .experts = t[1], .weights = t[2], .is_routed = t[3], .rule = rule});
      ops.choose_experts_backward(
          {.logits = t[0], .experts = t[1], .dweights = t[4], .dlogits = t[5], .addend = t[6], .rule = rule});
    });
}

}  // namespace
}  // namespace echelon
