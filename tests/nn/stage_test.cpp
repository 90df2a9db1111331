// Stages: what they own, unit-wise calls, and a model cut into two of them.
#include "nn/decoder/stage.h"

#include "nn/bench.h"
#include "nn/models.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace echelon::test {
namespace {

std::vector<Param*> all_params(Stage& stage) { return passes_of(stage).params; }

TEST(Stage, OwnsTheParametersThatTheModelCounts) {
  for (const ModelSpec& model : all_small_models()) {
    Stage stage(one_rank(model), whole_model);
    std::int64_t count = 0;
    std::set<std::string> names;
    for (const Param* param : all_params(stage)) {
      count += param->global_sizes().num_elements();
      EXPECT_TRUE(names.insert(param->name).second) << param->name << " is there twice";
      EXPECT_EQ(param->decays, param->global_sizes().num_dims() == 2) << param->name;
      EXPECT_EQ(param->init_std > 0, param->global_sizes().num_dims() == 2) << param->name;
      EXPECT_TRUE(param->is_first_copy);
    }
    EXPECT_EQ(count, model.num_parameters());
  }
}

TEST(Stage, NamesParametersAsHuggingFacesLlamaDoes) {
  ModelSpec model = small_qwen();
  model.tie_word_embeddings = false;
  Stage stage(one_rank(model), {.first_layer = 7, .num_layers = 1, .has_head = true});
  std::vector<std::string> names;
  for (const Param* param : all_params(stage)) names.push_back(param->name);
  const std::string layer = "model.layers.7.";
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          layer + "input_layernorm.weight", layer + "self_attn.q_proj.weight", layer + "self_attn.q_proj.bias",
          layer + "self_attn.k_proj.weight", layer + "self_attn.k_proj.bias", layer + "self_attn.v_proj.weight",
          layer + "self_attn.v_proj.bias", layer + "self_attn.q_norm.weight", layer + "self_attn.k_norm.weight",
          layer + "self_attn.o_proj.weight", layer + "post_attention_layernorm.weight", layer + "mlp.gate_proj.weight",
          layer + "mlp.up_proj.weight", layer + "mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"}));
}

TEST(Stage, KeepsATiedWeightInAUnitOfItsOwn) {
  const LayerOptions options = one_rank(small_qwen());
  for (const StageLayers& layers : {whole_model, StageLayers{.num_layers = 1, .has_embedding = true},
                                    StageLayers{.num_layers = 1, .has_head = true}}) {
    Stage stage(options, layers);
    ASSERT_TRUE(stage.has_tied_weight());
    const std::vector<Param*> tied = stage.unit_params(stage.num_units());
    ASSERT_EQ(tied.size(), 1U);
    EXPECT_EQ(tied[0]->name, "model.embed_tokens.weight");
    for (int index = 0; index < stage.num_units(); ++index)
      for (const Param* param : stage.unit_params(index)) EXPECT_NE(param, tied[0]);
  }
  Stage middle(options, {.num_layers = 1});
  EXPECT_FALSE(middle.has_tied_weight());
  EXPECT_TRUE(middle.unit_params(middle.num_units()).empty());
}

struct Outcome {
  double loss_sum = 0;
  std::map<std::string, std::vector<double>> tensors;
  bool operator==(const Outcome&) const = default;
};

// A stage with memory and tables.
struct StageAtWork {
  StageAtWork(const LayerOptions& options, const StageLayers& layers, Calls calls = Calls::whole_stage,
              std::unique_ptr<Ops> ops = make_reference_ops())
      : stage(options, layers), tables(options), bench(passes_of(stage, calls), options, mesh, mesh, std::move(ops)) {
    stage.bind_rope_tables(bench.ops(), tables.cos, tables.sin);
  }
  LonelyMesh mesh;
  Stage stage;
  Tables tables;
  Bench bench;
};

void add_outcome(Outcome& outcome, const Bench& bench) {
  outcome.loss_sum += bench.loss_sum();
  for (const Param* param : bench.params()) {
    std::vector<double>& sum = outcome.tensors[param->name];
    const std::vector<double> numbers = numbers_of(param->grad);
    sum.resize(numbers.size(), 0.0);
    for (std::size_t i = 0; i < numbers.size(); ++i) sum[i] += numbers[i];
  }
}

TEST(Stage, UnitWiseCallsGiveWhatOneCallGives) {
  for (const StageLayers& layers : {whole_model, StageLayers{.first_layer = 1, .num_layers = 3}}) {
    std::vector<Outcome> outcomes;
    for (const Calls calls : {Calls::whole_stage, Calls::by_unit}) {
      for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
        StageAtWork at_work(one_rank(small_gpt2()), layers, calls);
        at_work.bench.run(kind);
        Outcome& outcome = outcomes.emplace_back();
        add_outcome(outcome, at_work.bench);
        if (!layers.has_embedding) outcome.tensors["dx"] = numbers_of(at_work.bench.dx());
      }
    }
    EXPECT_EQ(outcomes[0], outcomes[2]);  // fused
    EXPECT_EQ(outcomes[1], outcomes[3]);  // split
  }
}

// The first stage's y is the second's x, and the second's dx the first's dy; the two copies of a tied weight are
// summed.
TEST(Stage, TwoStagesGiveWhatOneGives) {
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2()}) {
    const LayerOptions options = one_rank(model);
    StageAtWork whole(options, whole_model);
    whole.bench.run(BackwardKind::fused);
    Outcome expected;
    add_outcome(expected, whole.bench);

    StageAtWork first(options, {.num_layers = 1, .has_embedding = true});
    StageAtWork second(options, {.first_layer = 1, .num_layers = 1, .has_head = true});
    first.bench.forward();
    set_numbers(second.bench.x(), numbers_of(first.bench.y()));
    second.bench.run(BackwardKind::split);
    set_numbers(first.bench.dy(), numbers_of(second.bench.dx()));
    first.bench.run(BackwardKind::fused);
    Outcome outcome;
    add_outcome(outcome, first.bench);
    add_outcome(outcome, second.bench);

    EXPECT_EQ(outcome.loss_sum, expected.loss_sum);
    ASSERT_EQ(outcome.tensors.size(), expected.tensors.size());
    for (const auto& [name, numbers] : expected.tensors)
      for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_NEAR(outcome.tensors.at(name)[i], numbers[i], 1e-12) << name;
  }
}

// The processors' backend and the oracle, through whole stages.
TEST(Stage, CpuBackendAgreesWithTheReference) {
  for (const ModelSpec& model : all_small_models()) {
    for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
      std::vector<Outcome> outcomes;
      for (const bool is_cpu : {false, true}) {
        StageAtWork at_work(one_rank(model), whole_model, Calls::whole_stage,
                            is_cpu ? make_cpu_ops({}) : make_reference_ops());
        at_work.bench.run(kind);
        add_outcome(outcomes.emplace_back(), at_work.bench);
      }
      EXPECT_NEAR(outcomes[1].loss_sum, outcomes[0].loss_sum, 1e-11);
      for (const auto& [name, numbers] : outcomes[0].tensors)
        for (std::size_t i = 0; i < numbers.size(); ++i)
          EXPECT_NEAR(outcomes[1].tensors.at(name)[i], numbers[i], 1e-11 * (1.0 + std::abs(numbers[i]))) << name;
    }
  }
}

// In bfloat16 and float32 the numbers are those of float64 up to the rounding of the activations.
TEST(Stage, LowerPrecisionAgreesUpToRounding) {
  const auto run = [](DType dtype) {
    LayerOptions options = one_rank(small_llama());
    options.dtype = dtype;
    options.grad_dtype = accumulate_dtype(dtype);
    StageAtWork at_work(options, whole_model);
    EXPECT_EQ(at_work.bench.run(BackwardKind::fused), at_work.bench.measured(BackwardKind::fused));
    Outcome outcome;
    add_outcome(outcome, at_work.bench);
    return outcome;
  };
  const Outcome expected = run(DType::float64);
  for (const auto& [dtype, tolerance] : {std::pair{DType::float32, 1e-5}, std::pair{DType::bfloat16, 0.1}}) {
    const Outcome outcome = run(dtype);
    EXPECT_NEAR(outcome.loss_sum / expected.loss_sum, 1.0, tolerance);
    for (const auto& [name, numbers] : expected.tensors) {
      double error = 0, size = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        error += std::pow(outcome.tensors.at(name)[i] - numbers[i], 2);
        size += std::pow(numbers[i], 2);
      }
      EXPECT_LT(std::sqrt(error / size), tolerance) << name << " in " << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace echelon::test
