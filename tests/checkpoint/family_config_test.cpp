// What the config.json of a family says besides Llama's fields.
#include "family_configs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::family_configs {
namespace {

using ::testing::HasSubstr;

// transformers 4.57 takes "type" in OLMo 2 alone, and "rope_type" in Granite alone.
TEST(FamilyConfig, TheOlderDialectNamesTheTypeOfRopeAsEachFamilyTakesIt) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}}, older = {{"type", "linear"}, {"factor", 2.0}};
  for (const auto& [family, scaling] :
       {std::pair("granite", linear), std::pair("llama", linear), std::pair("olmo2", older)})
    EXPECT_EQ(written(read(config_of(family, {{"rope_scaling", linear}, {"head_dim", nullptr}}))).at("rope_scaling"),
              scaling)
        << family;
}

TEST(FamilyConfig, Olmo3) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 16}};
  const ModelSpec model = read(config_of("olmo3", {{"rope_scaling", yarn}, {"sliding_window", 32}}));
  EXPECT_EQ(model.layer_types, (std::vector<LayerType>{sliding, sliding, sliding, full, sliding, sliding}));
  EXPECT_EQ(model.rope_scaling->rope_type, RopeType::yarn);
  EXPECT_EQ(model.sliding_rope, (RopeSpec{.rope_theta = 10000}));
  EXPECT_EQ(model.norm_placement, NormPlacement::after);
  EXPECT_TRUE(model.qk_norm_of_projection);
  EXPECT_EQ(read(written(model)), model);
  EXPECT_FALSE(read(config_of("olmo3", {})).sliding_rope);  // all layers have the same
  EXPECT_EQ(read(config_of("olmo2", {})).windows(), std::vector<std::int64_t>{0});
}

TEST(FamilyConfig, OlmoeMayLimitQueriesKeysAndValues) {
  json config = config_of("olmoe", {{"num_experts", 4}, {"num_experts_per_tok", 2}});
  EXPECT_EQ(read(config).clip_qkv, 0);
  EXPECT_EQ(written(read(config)).at("clip_qkv"), nullptr);
  config["clip_qkv"] = 8.5;
  const ModelSpec model = read(config);
  EXPECT_EQ(model.clip_qkv, 8.5);
  EXPECT_EQ(written(model).at("clip_qkv"), 8.5);
  EXPECT_EQ(read(written(model)), model);
}

TEST(FamilyConfig, GptNeox) {
  json config = config_of("gpt_neox", {{"rotary_pct", 0.5}, {"rotary_emb_base", 5000}, {"layer_norm_eps", 3e-6}});
  for (const char* key : {"rope_theta", "num_key_value_heads", "head_dim"}) config.erase(key);
  const ModelSpec model = read(config);
  EXPECT_EQ(model.rope_theta, 5000);
  EXPECT_EQ(model.rotary_dim(), 8);
  EXPECT_EQ(model.norm_eps, 3e-6);
  EXPECT_TRUE(model.use_parallel_residual && model.qkv_bias && model.o_bias && model.mlp_bias);
  EXPECT_EQ(model.mlp, MlpKind::gelu_erf);
  EXPECT_EQ(read(written(model)), model);
  config["hidden_act"] = "gelu_fast";  // GPT-NeoX 20B
  config["use_parallel_residual"] = false;
  EXPECT_EQ(read(config).mlp, MlpKind::gelu);
  EXPECT_FALSE(read(config).use_parallel_residual);
  config.erase("rotary_pct");
  EXPECT_EQ(read(config).partial_rotary_factor, 0.25);
}

TEST(FamilyConfig, Granite) {
  const ModelSpec model = read(config_of("granite", {{"embedding_multiplier", 12.0},
                                                     {"residual_multiplier", 0.22},
                                                     {"attention_multiplier", 0.0078125},
                                                     {"logits_scaling", 16.0}}));
  EXPECT_EQ(model.embedding_multiplier, 12);
  EXPECT_EQ(model.residual_multiplier, 0.22);
  EXPECT_EQ(model.attention_scale(), 0.0078125);
  EXPECT_EQ(model.logits_scaling, 16);
  EXPECT_EQ(read(written(model)), model);
  EXPECT_EQ(read(config_of("granite", {})).attention_scale(), 1);
}

TEST(FamilyConfig, Ministral3) {
  json config = config_of("ministral3", {});
  config.erase("rope_theta");
  const ModelSpec model = read(config);  // says nothing of RoPE
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope_scaling->rope_type, RopeType::yarn);
  EXPECT_EQ(model.rope_scaling->llama_4_scaling_beta, 0.1);
  EXPECT_EQ(model.sliding_window, 0);
  EXPECT_EQ(read(written(model)), model);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 100.0}};
  const ModelSpec plain = read(config);
  EXPECT_FALSE(plain.rope_scaling);
  EXPECT_EQ(read(written(plain)), plain);
  // transformers multiplies by these in any case.
  EXPECT_EQ(written(plain).at("rope_parameters").at("llama_4_scaling_beta"), 0.0);
  EXPECT_EQ(written(plain).at("rope_parameters").at("original_max_position_embeddings"), 128);
  config["rope_parameters"]["llama_4_scaling_beta"] = 0.1;
  EXPECT_THAT(refusal(config), HasSubstr("rope_parameters.llama_4_scaling_beta = 0.1 needs a kind of scaling"));
}

TEST(FamilyConfig, RefusesByName) {
  const json experts = {{"num_experts", 4}, {"num_experts_per_tok", 2}};
  json clipped = config_of("olmoe", experts), windowed = config_of("qwen2_moe", experts);
  clipped["clip_qkv"] = 0.0;
  windowed["use_sliding_window"] = true;
  const std::pair<json, std::string> cases[] = {
      {config_of("gemma2", {{"final_logit_softcapping", 0.0}}), "final_logit_softcapping = 0.0 is not above 0"},
      {config_of("gemma2", {{"query_pre_attn_scalar", 0}}), "query_pre_attn_scalar = 0 is not above 0"},
      {config_of("gemma2", {{"query_pre_attn_scalar", 1.5}}), "query_pre_attn_scalar = 1.5 is not a whole number"},
      {config_of("gemma2", {{"hidden_activation", "gelu"}}), "hidden_activation = \"gelu\""},
      {config_of("gemma3_text", {{"use_bidirectional_attention", true}}), "use_bidirectional_attention = true"},
      {config_of("granite", {{"attention_multiplier", 0.0}}), "attention_multiplier = 0.0 is not above 0"},
      {config_of("granite", {{"residual_multiplier", -1.0}}), "residual_multiplier = -1"},
      {config_of("llama", {{"embedding_multiplier", 2.0}}), "embedding_multiplier = 2.0 would change the computation"},
      {clipped, "clip_qkv = 0.0 is not above 0"},
      {config_of("llama", {{"clip_qkv", 8.0}}), "clip_qkv = 8.0 would change the computation"},
      {windowed, "use_sliding_window = true"},
      {config_of("olmo3", {{"layer_types", {"full_attention"}}}), "is no list of all 6 layers"},
      {config_of("gpt_neox", {{"rotary_pct", 0.2}}), "partial_rotary_factor = 0.2"}};
  for (const auto& [config, said] : cases) EXPECT_THAT(refusal(config), HasSubstr(said));
}

// Layers that are added or left out keep the pattern, and can be written.
TEST(FamilyConfig, PatternsOfLayersFollowTheirNumber) {
  ModelSpec model = read(config_of("gemma3_text", {{"sliding_window_pattern", 3}}));
  model.set_num_layers(9);
  EXPECT_EQ(std::ranges::count(model.layer_types, full), 3);
  EXPECT_EQ(read(written(model)), model);
  model.set_num_layers(2);
  EXPECT_EQ(model.windows(), std::vector<std::int64_t>{4096});
  EXPECT_EQ(read(written(model)), model);
  ModelSpec other = read(config_of("smollm3", {}));
  other.set_num_layers(3);
  EXPECT_TRUE(other.has_rope(2));
  EXPECT_EQ(read(written(other)), other);
}

}  // namespace
}  // namespace echelon::family_configs
