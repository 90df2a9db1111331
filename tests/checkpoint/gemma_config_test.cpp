// What the config.json of Gemma 2 and 3 says besides Llama's fields, in the dialects of transformers 4 and 5.
#include "family_configs.h"

#include <gtest/gtest.h>

namespace echelon::family_configs {
namespace {

TEST(GemmaConfig, Gemma2) {
  const json config = config_of("gemma2", {{"hidden_activation", "gelu_pytorch_tanh"}, {"query_pre_attn_scalar", 144}});
  const ModelSpec model = read(config);
  EXPECT_EQ(model.embedding_multiplier, 8);  // sqrt(64)
  EXPECT_DOUBLE_EQ(model.attention_scale(), 1.0 / 12);
  EXPECT_EQ(model.attn_logit_softcapping, 50);
  EXPECT_EQ(model.final_logit_softcapping, 30);
  EXPECT_EQ(model.sliding_window, 4096);
  EXPECT_EQ(model.layer_types, (std::vector<LayerType>{sliding, full, sliding, full, sliding, full}));
  EXPECT_TRUE(model.tie_word_embeddings && model.norm_adds_one && model.rounds_embedding_multiplier);
  EXPECT_TRUE(written(model).at("query_pre_attn_scalar").is_number_integer());  // transformers takes no other
  EXPECT_EQ(read(written(model)), model);
  json uncapped = config;
  uncapped.update({{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  EXPECT_EQ(read(uncapped).attn_logit_softcapping, 0);
  EXPECT_EQ(read(uncapped).final_logit_softcapping, 0);
  EXPECT_TRUE(written(read(uncapped)).at("final_logit_softcapping").is_null());
  EXPECT_EQ(read(written(read(uncapped))), read(uncapped));
}

// A text_config names what differs from the class's defaults alone.
TEST(GemmaConfig, Gemma3MayOmitAnyField) {
  ModelSpec expected = family_defaults(Family::gemma3_text);
  expected.hidden_size = 2304;
  expected.num_hidden_layers = 26;
  expected.num_attention_heads = 8;
  expected.num_key_value_heads = 4;
  expected.head_dim = 256;
  expected.intermediate_size = 9216;
  expected.vocab_size = 262208;
  expected.max_position_embeddings = 131072;
  expected.rope_theta = 1e6;
  expected.sliding_rope = RopeSpec{.rope_theta = 1e4};
  expected.sliding_window = 4096;
  for (int i = 0; i < 26; ++i) expected.layer_types.push_back((i + 1) % 6 == 0 ? full : sliding);
  expected.embedding_multiplier = 48;
  EXPECT_EQ(read({{"model_type", "gemma3_text"}}), expected);
}

// transformers 4.57 and 5.23 never apply Gemma 3's.
TEST(GemmaConfig, Gemma3HasNoSoftCapOfScores) {
  json config = config_of("gemma3_text", {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", 30.0}});
  EXPECT_EQ(read(config).attn_logit_softcapping, 0);
  EXPECT_EQ(read(config).final_logit_softcapping, 30);
  config["attn_logit_softcapping"] = 50.0;
  EXPECT_NE(refusal(config).find("attn_logit_softcapping = 50.0 would change the computation"), std::string::npos);
}

TEST(GemmaConfig, Gemma3ScalesTheRopeOfLayersWithoutAWindow) {
  const json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  const json older = config_of(
      "gemma3_text",
      {{"rope_theta", 1e6}, {"rope_local_base_freq", 123.0}, {"rope_scaling", linear}, {"sliding_window_pattern", 3}});
  const ModelSpec model = read(older);
  EXPECT_EQ(model.rope_scaling, (RopeScaling{.rope_type = RopeType::linear, .factor = 8}));
  EXPECT_EQ(model.sliding_rope, (RopeSpec{.rope_theta = 123}));
  EXPECT_EQ(model.layer_types, (std::vector<LayerType>{sliding, sliding, full, sliding, sliding, full}));
  json newer = older;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) newer.erase(key);
  newer["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 123.0}}}};
  EXPECT_EQ(read(newer), model);
  const json both = written(model);
  EXPECT_EQ(both.at("rope_parameters"), newer.at("rope_parameters"));
  EXPECT_EQ(both.at("rope_scaling"), linear);
  EXPECT_EQ(both.at("rope_local_base_freq"), 123.0);
  EXPECT_EQ(read(both), model);
  // Both may be scaled, which the older dialect cannot say.
  newer["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 123.0}};
  EXPECT_EQ(read(newer).sliding_rope->scaling, (RopeScaling{.rope_type = RopeType::linear, .factor = 2}));
  EXPECT_EQ(read(written(read(newer))), read(newer));
  EXPECT_FALSE(has_rope_of_version_4(read(newer)));
  EXPECT_TRUE(has_rope_of_version_4(model));
}

// There layers with a window have the same theta.
TEST(Olmo3Config, KnowsWhatVersion4CannotSay) {
  ModelSpec model = read(config_of("olmo3", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  ASSERT_GT(model.sliding_window, 0);
  EXPECT_TRUE(has_rope_of_version_4(model));
  model.sliding_rope->rope_theta *= 2;
  EXPECT_FALSE(has_rope_of_version_4(model));
  model.sliding_rope.reset();
  EXPECT_FALSE(has_rope_of_version_4(model));
}

}  // namespace
}  // namespace echelon::family_configs
