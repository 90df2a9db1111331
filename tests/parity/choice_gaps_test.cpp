// The gaps of choices, by hand: whatever a choice goes by, one that rounding could decide is found.
#include "parity/choice_gaps.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// One sequence of two tokens for a layer of four experts.
RunConfig config_of_two_tokens() {
  RunConfig config = config_of({.layers = 1, .experts = 4});
  config.training.steps = config.training.global_batch_size = 1;
  config.training.seq_len = 2;
  return config;
}

void add(echelon::Choices& choices, std::int64_t token, const RoutedChoice& choice) {
  choices.add({1, "model.layers.0.mlp.gate.weight", token}, choice);
}

/// Of one token, with logits that differ by 1e-6 between the runs.
ChoiceGaps gaps_of_token(RoutedChoice choice) {
  echelon::Choices actual, expected;
  add(expected, 0, choice);
  choice.token.logits[0] += 1e-6;
  add(actual, 0, choice);
  return gaps_of(actual, expected, config_of_two_tokens());
}

TEST(ChoiceGaps, OfLogitsAreBetweenTheLastChosenAndTheNext) {
  const ChoiceGaps gaps = gaps_of_token({.token = {.logits = {3, 1, 2, 0.99}}, .experts = {0, 2}});
  EXPECT_NEAR(gaps.experts.gap, 1, 1e-12);
  EXPECT_NEAR(gaps.experts.difference, 1e-6, 1e-12);
  EXPECT_TRUE(gaps.experts.is_clear());
  EXPECT_TRUE(std::isinf(gaps.groups.gap)) << "there is one group";
  const ChoiceGaps close = gaps_of_token({.token = {.logits = {3, 1, 2, 1.99999}}, .experts = {0, 2}});
  EXPECT_NEAR(close.experts.gap, 1e-5, 1e-12);
  EXPECT_FALSE(close.experts.is_clear());
}

TEST(ChoiceGaps, OfABiasAreOfScorePlusBias) {
  RouterRule rule;
  rule.scores = ExpertScores::sigmoid;  // 0.5 of each
  const ChoiceGaps gaps =
      gaps_of_token({.token = {.logits = {0, 0, 0, 0}, .bias = {0.3, 0.2, 0.1, 0.1}, .rule = rule}, .experts = {0, 1}});
  EXPECT_NEAR(gaps.experts.gap, 0.1, 1e-12);
  EXPECT_NEAR(gaps.experts.difference, 0.25e-6, 1e-12);
}

TEST(ChoiceGaps, OfGroupsAreOfWhatGroupsAreChosenBy) {
  RouterRule rule;
  rule.num_groups = 2;
  const RoutedToken token = {.logits = {3, 0, 2.9, 2.8}, .rule = rule};
  const ChoiceGaps by_best = gaps_of_token({.token = token, .experts = {0}});
  EXPECT_NEAR(by_best.groups.gap, 0.1, 1e-12);
  EXPECT_NEAR(by_best.experts.gap, 3, 1e-12) << "experts of the other group are not open to choice";
  rule.scores = ExpertScores::sigmoid;
  rule.group_score = GroupScore::sum_of_two;
  const ChoiceGaps by_two =
      gaps_of_token({.token = {.logits = {0, 0, 0, 0}, .bias = {0, 0.5, 0.2, 0.29}, .rule = rule}, .experts = {1}});
  EXPECT_NEAR(by_two.groups.gap, 0.01, 1e-6);
  EXPECT_NEAR(by_two.groups.difference, 0.25e-6, 1e-12);
}

TEST(ChoiceGaps, OfRowsAreAtTheThresholdOfACapacity) {
  RunConfig config = config_of_two_tokens();
  config.moe.capacity_order = CapacityOrder::score;
  RouterRule rule;
  rule.scores = ExpertScores::sigmoid;
  const RoutedChoice kept = {.token = {.logits = {0, -9, -9, -9}, .rule = rule}, .experts = {0}, .kept = {0}},
                     dropped = {.token = {.logits = {-0.004, -9, -9, -9}, .rule = rule}, .experts = {0}, .kept = {-1}};
  RoutedChoice of_layout = dropped;
  of_layout.token.logits[0] += 1e-4;
  echelon::Choices actual, expected;
  add(expected, 0, kept), add(expected, 1, dropped);
  add(actual, 0, kept), add(actual, 1, of_layout);
  const ChoiceGaps gaps = gaps_of(actual, expected, config);
  EXPECT_NEAR(gaps.rows.gap, 0.000975, 1e-7);
  EXPECT_NEAR(gaps.rows.difference, 0.25e-4, 1e-8);
  EXPECT_FALSE(gaps.rows.is_clear());
  config.moe.capacity_order = CapacityOrder::position;
  EXPECT_TRUE(std::isinf(gaps_of(actual, expected, config).rows.gap)) << "positions are not rounded";
}

}  // namespace
}  // namespace echelon::testing
