// Losses and gradients of tiny models against transformers, a model for each family that brings a mechanism. The file
// of what transformers computes, the weights and the tokens: make_transformers_gradients.py.
#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

namespace echelon::test::transformers {
namespace {

constexpr std::int64_t B = 2, T = 8, V = 41;

ModelSpec sizes() {
  ModelSpec model = small_llama();
  model.hidden_size = 16;
  model.intermediate_size = 20;
  model.vocab_size = V;
  model.head_dim = 4;
  model.max_position_embeddings = 64;
  model.norm_eps = 1e-6;
  model.rope_theta = 100;
  return model;
}

ModelSpec llama_yarn() {
  ModelSpec model = sizes();
  model.head_dim = 6;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                                   .factor = 4,
                                   .original_max_position_embeddings = 4,
                                   .beta_fast = 1,
                                   .beta_slow = 0.1,
                                   .truncate = false};
  return model;
}

ModelSpec gemma() {
  ModelSpec model = sizes();
  model.head_dim = 6;
  model.mlp = MlpKind::geglu;
  model.norm_placement = NormPlacement::both;
  model.norm_adds_one = true;
  model.embedding_multiplier = 4;
  model.query_pre_attn_scalar = 5;
  model.tie_word_embeddings = true;
  model.sliding_window = 3;
  model.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
  return model;
}

ModelSpec gemma2() {
  ModelSpec model = gemma();
  model.attn_logit_softcapping = 0.9;
  model.final_logit_softcapping = 1.5;
  return model;
}

ModelSpec gemma3() {
  ModelSpec model = gemma();
  model.qk_norm = true;
  model.rope_scaling = RopeScaling{.rope_type = RopeType::linear, .factor = 2};
  model.sliding_rope = RopeSpec{.rope_theta = 10};
  return model;
}

ModelSpec olmo2() {
  ModelSpec model = sizes();
  model.norm_eps = 1e-5;
  model.norm_placement = NormPlacement::after;
  model.qk_norm = model.qk_norm_of_projection = true;
  return model;
}

ModelSpec granite() {
  ModelSpec model = sizes();
  model.embedding_multiplier = 2.5;
  model.residual_multiplier = 0.4;
  model.attention_multiplier = 0.3;
  model.logits_scaling = 1.7;
  return model;
}

ModelSpec gpt_neox() {
  ModelSpec model = sizes();
  model.num_key_value_heads = 4;
  model.norm = NormKind::layer_norm;
  model.norm_eps = 1e-5;
  model.mlp = MlpKind::gelu_erf;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.use_parallel_residual = true;
  model.partial_rotary_factor = 0.5;
  return model;
}

ModelSpec phi3() {
  ModelSpec model = sizes();
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.head_dim = 8;
  model.norm_eps = 1e-5;
  model.partial_rotary_factor = 0.75;
  model.rope_scaling = RopeScaling{.rope_type = RopeType::longrope,
                                   .factor = 64.0 / 6,
                                   .original_max_position_embeddings = 6,
                                   .short_factor = {1, 2, 3},
                                   .long_factor = {1.5, 4, 6}};
  return model;
}

ModelSpec ministral3() {
  ModelSpec model = llama_yarn();
  model.norm_eps = 1e-5;
  model.qkv_bias = model.o_bias = model.mlp_bias = false;
  model.rope_scaling->truncate = true;
  model.rope_scaling->llama_4_scaling_beta = 0.3;
  return model;
}

ModelSpec smollm3() {
  ModelSpec model = sizes();
  model.no_rope_layers = {1, 0};
  return model;
}

ModelSpec starcoder2() {
  ModelSpec model = sizes();
  model.norm = NormKind::layer_norm;
  model.norm_eps = 1e-5;
  model.mlp = MlpKind::gelu_erf;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  return model;
}

// Of each tensor the product with two vectors, and the norm; of the loss itself.
std::map<std::string, std::vector<double>> expected_of(const std::string& model) {
  std::map<std::string, std::vector<double>> rows;
  std::ifstream file(ECHELON_SOURCE_DIR "/tests/nn/transformers_gradients.csv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string of, tensor, number;
    std::getline(fields, of, ',');
    std::getline(fields, tensor, ',');
    while (of == model && std::getline(fields, number, ',')) rows[tensor].push_back(std::stod(number));
  }
  return rows;
}

std::vector<double> weights_of(const ModelSpec& model, const Param& param) {
  std::int64_t start = 0;
  for (std::size_t k = 0; k < param.name.size(); ++k) start += static_cast<std::int64_t>(k + 1) * param.name[k];
  const bool is_bias = param.name.ends_with("bias"), is_gain = param.name.find("norm") != std::string::npos && !is_bias;
  const double factor = is_gain ? 0.2 : is_bias ? 0.1 : 0.4, offset = is_gain && !model.norm_adds_one ? 1.0 : 0.0;
  std::vector<double> weights;
  for (std::int64_t n = 0; n < param.local_sizes().num_elements(); ++n) {
    const auto i = static_cast<double>(n);
    weights.push_back(offset + factor * std::sin(0.013 * i * i + 0.7 * i + static_cast<double>(start % 997)));
  }
  return weights;
}

Batch batch_of(const ModelSpec& model) {
  const auto token = [](std::int64_t b, std::int64_t i) {
    return static_cast<std::int32_t>((7 * i * i + 3 * b * i + 11 * b + 5) % V);
  };
  Batch batch;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t i = 0; i < T; ++i) {
      batch.tokens.push_back(token(b, i));
      batch.targets.push_back((b + i) % 5 == 0 ? ignored_target : token(b, i + 1));
      if (model.sliding_window > 0)
        batch.key_begin.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, i - model.sliding_window + 1)));
    }
  return batch;
}

void expect_as_in_transformers(const std::string& name, const ModelSpec& model) {
  SCOPED_TRACE(name);
  LayerOptions options = one_rank(model, B, T);
  if (model.sliding_window > 0) options.windows = {model.sliding_window};
  LonelyMesh mesh;
  Stage stage(options, whole_model);
  const Tables tables(options);
  Bench bench(passes_of(stage), options, mesh, mesh);
  stage.bind_rope_tables(bench.ops(), tables.cos, tables.sin);
  for (Param* param : bench.params()) set_numbers(param->value, weights_of(model, *param));
  bench.set_batch(batch_of(model));
  bench.run(BackwardKind::fused);
  auto expected = expected_of(name);
  ASSERT_EQ(expected.size(), bench.params().size() + 1);
  EXPECT_NEAR(bench.loss_sum(), expected["loss"].at(0), 1e-5 * bench.loss_sum());
  for (const Param* param : bench.params()) {
    std::vector<double> actual(3);
    const std::vector<double> gradient = numbers_of(param->grad);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i] / Bench::gradient_scale, at = static_cast<double>(i);
      actual[0] += g * std::sin(1.3 * at);
      actual[1] += g * std::cos(0.9 * at);
      actual[2] += g * g;
    }
    actual[2] = std::sqrt(actual[2]);
    const std::vector<double>& of_it = expected[param->name];
    ASSERT_EQ(of_it.size(), 3U) << param->name;
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(actual[i], of_it[i], 1e-5 * std::max(1.0, of_it[2])) << param->name << ", " << i;
  }
}

// Claim (reference): Tiny models with the mechanisms of ten families give transformers' loss and gradients.
// Bound: 1e-5 of the loss and of each gradient's norm; transformers computes in float32.
// Tests: Transformers
TEST(Transformers, GiveTheSameLossesAndGradients) {
  expect_as_in_transformers("llama_yarn", llama_yarn());
  expect_as_in_transformers("gemma2", gemma2());
  expect_as_in_transformers("gemma3", gemma3());
  expect_as_in_transformers("olmo2", olmo2());
  expect_as_in_transformers("granite", granite());
  expect_as_in_transformers("gpt_neox", gpt_neox());
  expect_as_in_transformers("ministral3", ministral3());
  expect_as_in_transformers("phi3", phi3());
  expect_as_in_transformers("smollm3", smollm3());
  expect_as_in_transformers("starcoder2", starcoder2());
}

}  // namespace
}  // namespace echelon::test::transformers
