// Every layer's gradients against finite differences in float64, and the two ways to compute them against each other.
#include "nn/bench.h"
#include "nn/decoder/attention.h"
#include "nn/decoder/decoder_block.h"
#include "nn/decoder/embedding.h"
#include "nn/decoder/latent/latent_attention.h"
#include "nn/decoder/mixture.h"
#include "nn/decoder/mlp.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::test {
namespace {

// dx and the gradients of all parameters.
using Gradients = std::vector<std::vector<double>>;

Gradients gradients_of(Bench& bench, BackwardKind kind) {
  EXPECT_EQ(bench.run(kind), bench.measured(kind)) << "a run takes what its trace says";
  Gradients outcome = {numbers_of(bench.dx())};
  for (const Param* param : bench.params()) outcome.push_back(numbers_of(param->grad));
  return outcome;
}

// NaN (nobody wrote: the first layer has no dx) equals NaN alone.
double largest_difference(const Gradients& a, const Gradients& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      if (std::isnan(a[i][j]) && std::isnan(b[i][j])) continue;
      const double difference = std::abs(a[i][j] - b[i][j]) / (1.0 + std::abs(b[i][j]));
      largest = std::isnan(difference) ? 1.0 : std::max(largest, difference);
    }
  }
  return largest;
}

void expect_right_gradients(Layer& layer, const LayerOptions& options) {
  LonelyMesh mesh;
  Bench bench(passes_of(layer), options, mesh, mesh);
  std::string worst;
  EXPECT_LT(finite_difference_error(bench, worst), 2e-9) << worst;

  const Gradients fused = gradients_of(bench, BackwardKind::fused), split = gradients_of(bench, BackwardKind::split);
  EXPECT_LT(largest_difference(fused, split), 1e-13);
}

TEST(Gradient, Norms) {
  LayerOptions options = one_rank(small_llama());
  Norm rms = Norm::of_tokens(options, "norm");
  expect_right_gradients(rms, options);
  options.model.norm = NormKind::layer_norm;
  Norm layer_norm = Norm::of_tokens(options, "norm");
  expect_right_gradients(layer_norm, options);
}

TEST(Gradient, AttentionWithGroupedQueries) {
  const LayerOptions options = one_rank(small_llama());
  const Tables tables(options);
  Attention attention(options, "attention", tables.rope);
  expect_right_gradients(attention, options);
}

TEST(Gradient, AttentionWithBiasesAndNormsOfQAndK) {
  LayerOptions options = one_rank(small_qwen());
  options.model.o_bias = true;
  const Tables tables(options);
  Attention attention(options, "attention", tables.rope);
  expect_right_gradients(attention, options);
}

TEST(Gradient, AttentionWithScaledRope) {
  LayerOptions options = one_rank(small_llama());
  options.model.rope_theta = 20.0;
  options.model.rope_scaling = RopeScaling{
      .factor = 4.0, .low_freq_factor = 1.0, .high_freq_factor = 2.0, .original_max_position_embeddings = 12};
  const Tables tables(options);
  Attention attention(options, "attention", tables.rope);
  expect_right_gradients(attention, options);
}

TEST(Gradient, AttentionWithLearnedPositions) {
  const LayerOptions options = one_rank(small_gpt2());
  const RopeTables none;
  Attention attention(options, "attention", none);
  expect_right_gradients(attention, options);
}

TEST(Gradient, LatentAttention) {
  for (const ModelSpec& model : {small_latents(), small_latents_of_keys()}) {
    const LayerOptions options = one_rank(model);
    const Tables tables(options);
    LatentAttention attention(options, "attention", tables.rope);
    expect_right_gradients(attention, options);
  }
}

TEST(Gradient, Mlps) {
  for (const ModelSpec& model : {small_llama(), small_gpt2(), small_yarn(), small_gelu()}) {
    const LayerOptions options = one_rank(model);
    Mlp mlp(options, "mlp");
    expect_right_gradients(mlp, options);
  }
}

// Of the weights, and of adapters next to them; phi3 has one A for q, k and v, and one for gate and up.
TEST(Gradient, Adapters) {
  for (const Family family : {Family::llama, Family::phi3}) {
    LayerOptions options = one_rank(small_llama());
    options.model.family = family;
    options.lora = {.rank = 3, .alpha = 5, .use_rslora = family == Family::phi3};
    const Tables tables(options);
    Attention attention(options, "model.layers.0.self_attn", tables.rope);
    EXPECT_EQ(attention.params().size(), family == Family::phi3 ? 4 + 6 : 4 + 8);
    expect_right_gradients(attention, options);
    Mlp mlp(options, "model.layers.0.mlp");
    EXPECT_EQ(mlp.params().size(), family == Family::phi3 ? 3 + 5 : 3 + 6);
    expect_right_gradients(mlp, options);
  }
}

TEST(Gradient, AdaptersOfLatentsAndSharedExperts) {
  for (const ModelSpec& model : {small_latents(), small_latents_of_keys()}) {
    LayerOptions options = one_rank(model);
    options.model.family = Family::deepseek_v3;
    options.lora = {.rank = 3, .alpha = 5};
    const Tables tables(options);
    LatentAttention attention(options, "model.layers.0.self_attn", tables.rope);
    EXPECT_EQ(attention.params().size(), model.q_lora_rank > 0 ? 8 + 11 : 6 + 9) << "the rotary key shares an A";
    expect_right_gradients(attention, options);
  }
  LayerOptions options = one_rank(small_gated_mixture());
  options.lora = {.rank = 3, .alpha = 5};
  Mixture mixture(options, "model.layers.0.mlp");
  EXPECT_EQ(mixture.params().size(), 4 + 4 + 6);
  expect_right_gradients(mixture, options);
}

// Gradients of x and of adapters are those that they are next to experts that are trained, and less is kept for them.
TEST(Gradient, FrozenExpertsAndRoutersPassThemOn) {
  LayerOptions options = one_rank(small_gated_mixture());
  options.lora = {.rank = 3, .alpha = 5};
  LonelyMesh mesh;
  Mixture trained(options, "model.layers.0.mlp"), frozen(options, "model.layers.0.mlp");
  for (Param* param : frozen.params()) param->trains = is_of_adapter(param->name);
  Bench of_trained(passes_of(trained), options, mesh, mesh), of_frozen(passes_of(frozen), options, mesh, mesh);
  for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
    const Gradients expected = gradients_of(of_trained, kind), actual = gradients_of(of_frozen, kind);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(actual[0], expected[0]);
    for (std::size_t i = 0; i < frozen.params().size(); ++i) {
      const Param& param = *frozen.params()[i];
      EXPECT_EQ(actual[i + 1], param.trains ? expected[i + 1] : std::vector<double>(expected[i + 1].size()))
          << param.name;
    }
    EXPECT_LT(of_frozen.measured(kind).sum(), of_trained.measured(kind).sum());
  }
}

TEST(Gradient, Mixtures) {
  for (const ModelSpec& model : {small_mixture(), small_gated_mixture(), small_groups_of_experts()}) {
    LayerOptions options = one_rank(model);
    Mixture mixture(options, "mlp");
    expect_right_gradients(mixture, options);
    // In sigmoids without a sum, and in a softmax of which weights are a part.
    options.model.mixture.norm_topk_prob = false;
    options.model.mixture.shared_expert_intermediate_size = 0;
    Mixture another(options, "mlp");
    expect_right_gradients(another, options);
  }
}

TEST(Gradient, DecoderBlocks) {
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2(), small_mixture(), small_latents()}) {
    LayerOptions options = one_rank(model);
    options.has_experts = model.mixture.exists();
    const Tables tables(options);
    DecoderBlock block(options, 0, tables.rope);
    expect_right_gradients(block, options);
  }
}

TEST(Gradient, DecoderBlocksOfOtherMechanisms) {
  for (const ModelSpec& model : small_mechanisms()) {
    for (const std::int64_t layer : {0, 1}) {
      LayerOptions options = one_rank(model);
      options.window = model.window_of(layer);
      options.has_rope = model.has_rope(layer);
      const Tables tables(options);
      DecoderBlock block(options, layer, tables.rope);
      expect_right_gradients(block, options);
    }
  }
}

TEST(Gradient, Embeddings) {
  for (const ModelSpec& model : {small_llama(), small_gpt2(), small_granite()}) {
    const LayerOptions options = one_rank(model);
    Embedding embedding(options);
    expect_right_gradients(embedding, options);
  }
}

TEST(Gradient, Heads) {
  for (const ModelSpec& model : {small_llama(), small_gpt2(), small_gemma(), small_granite()}) {
    const LayerOptions options = one_rank(model);
    const std::unique_ptr<Head> head = make_head(options);
    expect_right_gradients(*head, options);
  }
}

}  // namespace
}  // namespace echelon::test
