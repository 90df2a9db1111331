// Mixtures of experts: choices are compared before values, ties are no faults, and injected faults are named.
#include "verify/mixture_layout.h"
#include "verify/mixture_plants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

struct PlantedMixture {
  std::string name;
  MixtureLayout layout;
  Seed seed;
  std::string kind, tensor, evidence;
};

void PrintTo(const PlantedMixture& planted, std::ostream* out) { *out << planted.name; }

class MixturePlants : public ::testing::TestWithParam<PlantedMixture> {};

// Claim (checks): `echelon verify` finds faults of mixtures: in gradients and norms of experts, in what routers choose
//   and count, and in rows that travel.
// Bound: 19 faults, all by their kind; eleven reports of other systems.
// Tests: MixturePlants|MixtureControls|MixtureChoices|ReportedExpertFaults
TEST_P(MixturePlants, AreFound) {
  const PlantedMixture& planted = GetParam();
  const Verdict verdict = verdict_on(planted.layout, grow(planted.seed));
  ASSERT_FALSE(verdict.is_equal());
  ASSERT_TRUE(verdict.diagnosis);
  const Finding& finding = verdict.diagnosis->finding;
  SCOPED_TRACE(verdict.diagnosis->sentence());
  EXPECT_EQ(name_of(finding.kind), planted.kind);
  EXPECT_THAT(finding.tensor, ::testing::HasSubstr(planted.tensor));
  EXPECT_THAT(finding.evidence, ::testing::HasSubstr(planted.evidence));
}

std::vector<PlantedMixture> planted_mixtures() {
  const MixtureLayout ep = {.shard = 4, .ep = 2}, tp = {.tp = 2};
  const MixtureLayout with_losses = {.tp = 2, .sequence_parallel = true, .losses = true};
  const MixtureLayout shared = {.shard = 4, .ep = 2, .family = Family::qwen2_moe};
  const MixtureLayout rounds = {.shard = 2, .ep = 2, .bound = 0.5};
  const MixtureLayout features = {.shard = 8, .ep = 2, .etp = 2}, quarters = {.shard = 8, .ep = 2, .etp = 4},
                      rounds_of_features = {.shard = 8, .ep = 2, .bound = 0.5, .etp = 4};
  const MixtureLayout recomputed = {.shard = 2, .recompute = {BlockOperation::mlp}};
  const std::string experts = "model.layers.1.mlp.experts.gate_proj.weight", gate = "model.layers.1.mlp.gate.weight";
  return {
      {"DividedExperts", ep, divided_experts(2), "mean instead of a sum", ".experts.", "divided by 2"},
      {"ExpertsOfOwnTokens", ep, sum_of_gradient(experts, ActionKind::reduce_gradients, 0), "missing sum", ".experts.",
       "not summed over"},
      {"AveragedInNorm", ep, averaged_experts_in_norm(2), "mean instead of a sum", ".experts.", "divided by 2"},
      {"BiasOfOwnCounts",
       {.shard = 2, .family = Family::dots1},
       bias_of_own_counts(),
       "wrong bias of a router",
       ".mlp.gate",
       "right counts"},
      {"LossOfAPart", with_losses, loss_of_a_part(), "wrong loss of a router", ".mlp.gate", "whole sequences"},
      {"RouterNotSummed", tp, sum_of_gradient(gate, ActionKind::sum_replicas, 0), "missing sum", gate,
       "not summed over tp"},
      {"RowsInAnotherOrder", ep, rows_in_another_order(), "exchanged rows of experts", "layers.0.mlp.experts",
       "in place of"},
      {"RowsNextToASharedExpert", shared, rows_in_another_order(), "exchanged rows of experts", "layers.0.mlp.experts",
       "in place of"},
      {"LostLastRound", rounds, lost_last_round(), "lost rows of experts", "layers.0.mlp.experts", "are missing"},
      {"UnreturnedRows", rounds, unreturned_rows(), "lost rows of experts", "layers.0.mlp.experts",
       "as they were sent"},
      {"CountedByRecomputation", recomputed, counted_by_recomputation(), "repeated counts of experts", ".mlp.gate",
       "2 times"},
      {"DividedFeatures", features, divided_experts(2), "mean instead of a sum", ".experts.", "divided by 2"},
      {"FeaturesDividedByAllRanks", features, divided_experts(4), "mean instead of a sum", ".experts.",
       "divided by 4, the number of ranks of a sum over ep+etp"},
      {"FeaturesOfOwnTokens", features, sum_of_gradient(experts, ActionKind::reduce_gradients, 0), "missing sum",
       ".experts.", "not summed over"},
      {"FeaturesAveragedInNorm", features, averaged_experts_in_norm(2), "mean instead of a sum", ".experts.",
       "divided by 2"},
      {"RowsOfOneAddend", quarters, rows_of_one_addend(), "missing sum", "layers.0.mlp.experts",
       "not summed over etp: they lack what ranks 1, 2, 3"},
      {"RowsOfFeaturesInAnotherOrder", features, rows_in_another_order(), "exchanged rows of experts",
       "layers.0.mlp.experts", "in place of"},
      {"LostLastRoundOfFeatures", rounds_of_features, lost_last_round(), "lost rows of experts", "layers.0.mlp.experts",
       "are missing"},
      {"WrongChoices", ep, wrong_choices(), "wrong choice of experts", "layers.0.mlp.gate", "chose experts"},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, MixturePlants, ::testing::ValuesIn(planted_mixtures()),
                         [](const auto& row) { return row.param.name; });

TEST(MixtureControls, UnplantedLayoutsAreEqual) {
  for (const MixtureLayout& layout :
       {MixtureLayout{.shard = 4, .ep = 2, .losses = true},
        MixtureLayout{.tp = 2, .sequence_parallel = true, .bound = 0.4},
        MixtureLayout{.tp = 2, .family = Family::qwen2_moe, .recompute = {BlockOperation::mlp}},
        MixtureLayout{.shard = 2, .family = Family::dots1},
        MixtureLayout{.shard = 8, .ep = 2, .losses = true, .etp = 2}, MixtureLayout{.shard = 8, .ep = 2, .etp = 4},
        MixtureLayout{.shard = 8, .ep = 2, .bound = 0.5, .etp = 4}}) {
    const Verdict verdict = verdict_on(layout, {});
    EXPECT_TRUE(verdict.is_equal());
    ASSERT_TRUE(verdict.choices);
    const RunConfig config = mixture_config(layout);
    EXPECT_EQ(verdict.choices->num_choices,
              config.training.global_batch_size * 16 * config.model.num_hidden_layers * config.training.steps);
    EXPECT_EQ(verdict.choices->num_ties, 0);
    EXPECT_EQ(verdict.choices->num_wrong, 0);
  }
}

/// All logits are equal, and so close together that `noise`, which only decides a tie, is smaller than rounding.
class Ties final : public Plant {
 public:
  explicit Ties(double noise) : noise_(noise) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || place.action.kind != ActionKind::forward) return false;
    std::vector<double> logits(static_cast<std::size_t>(args->logits.num_elements()));
    for (std::size_t i = 3; i < logits.size(); i += 8) logits[i] = noise_;  // expert 3 of every second token
    place.ops.upload(args->logits, logits.data());
    place.ops.perform(operation);
    return true;
  }

 private:
  double noise_;
};

Interpose ties(double noise) {
  return grow([=] { return std::make_unique<Ties>(noise); });
}

// Rounding decides between equal scores. That is no fault: one rank takes the layout's choices, and the rest is equal.
TEST(MixtureChoices, TiesAreReplayed) {
  const MixtureLayout layout = {.shard = 4, .ep = 2};
  const Verdict verdict = verdict_on(layout, ties(1e-14), ties(0));
  EXPECT_EQ(verdict.choices->num_ties, verdict.choices->num_choices / 2);
  EXPECT_EQ(verdict.choices->num_wrong, 0);
  EXPECT_TRUE(verdict.is_equal()) << verdict.diagnosis->sentence();
}

// And a fault is no tie: with scores that differ, one rank keeps its choice.
TEST(MixtureChoices, FaultsAreNoTies) {
  const Verdict verdict = verdict_on({.shard = 4, .ep = 2}, ties(1e-3), ties(0));
  EXPECT_EQ(verdict.choices->num_wrong, verdict.choices->num_choices / 2);
  EXPECT_EQ(verdict.choices->num_ties, 0);
  EXPECT_FALSE(verdict.is_equal());
}

/// All tokens choose the first two experts, those in the second half of a sequence with more of the first one. Experts
/// drop rows by weights, and of equal ones the later.
class LaterTokensFirst final : public Plant {
 public:
  explicit LaterTokensFirst(double noise) : noise_(noise) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || place.action.kind != ActionKind::forward) return false;
    std::vector<double> logits(static_cast<std::size_t>(args->logits.num_elements()));
    for (std::size_t i = 0; i < logits.size(); i += 4) logits[i] = i / 4 % 16 < 8 ? 0 : noise_;
    place.ops.upload(args->logits, logits.data());
    place.ops.perform(operation);
    return true;
  }

 private:
  double noise_;
};

Interpose later_tokens_first(double noise) {
  return grow([=] { return std::make_unique<LaterTokensFirst>(noise); });
}

// What was chosen before rows are dropped is compared on every rank that has a part of a sequence, too.
TEST(MixtureChoices, AreThoseOfPartsOfSequences) {
  for (const MixtureLayout& layout :
       {MixtureLayout{.cp = 2, .capacity = 0.75}, MixtureLayout{.tp = 2, .sequence_parallel = true, .capacity = 0.75},
        MixtureLayout{.tp = 2, .ep = 2, .sequence_parallel = true, .cp = 2, .capacity = 0.75, .etp = 2}}) {
    const Verdict verdict = verdict_on(layout, {});
    EXPECT_TRUE(verdict.is_equal()) << verdict.diagnosis->sentence();
    ASSERT_TRUE(verdict.choices);
    EXPECT_EQ(verdict.choices->num_wrong, 0) << verdict.choices->sentence;
  }
}

// Rounding decides which of two rows an expert keeps if their weights are equal, and no other does.
TEST(MixtureChoices, TiesAtACapacityAreReplayed) {
  const MixtureLayout layout = {.shard = 4, .ep = 2, .capacity = 0.75};
  const Verdict tied = verdict_on(layout, later_tokens_first(1e-14), later_tokens_first(0));
  EXPECT_EQ(tied.choices->num_ties, 0);
  EXPECT_EQ(tied.choices->num_wrong, 0) << tied.choices->sentence;
  const RunConfig config = mixture_config(layout);
  // An expert takes six rows of a sequence, of sixteen.
  EXPECT_EQ(tied.choices->num_row_ties,
            6 * config.training.global_batch_size * config.model.num_hidden_layers * config.training.steps);
  EXPECT_TRUE(tied.is_equal()) << tied.diagnosis->sentence();
  const Verdict wrong = verdict_on(layout, later_tokens_first(1e-3), later_tokens_first(0));
  EXPECT_GT(wrong.choices->num_wrong, 0);
  EXPECT_EQ(wrong.choices->num_row_ties, 0);
  EXPECT_THAT(wrong.choices->sentence,
              ::testing::HasSubstr("of model.layers.0.mlp.gate.weight drops the row of token 0"));
  EXPECT_FALSE(wrong.is_equal());
}

}  // namespace
}  // namespace echelon::testing
