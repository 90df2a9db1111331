// Which parameters PEFT's modules_to_save name. What PEFT 0.21 does was seen by running it (tests/interop).
#include "spec/lora/saved_modules.h"

#include "base/error.h"
#include "spec/lora/lora_parameters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelSpec model_of(Family family, bool tied = false) {
  ModelSpec model = family_defaults(family);
  model.hidden_size = 8;
  model.num_hidden_layers = 1;
  model.num_attention_heads = model.num_key_value_heads = 2;
  model.head_dim = 4;
  model.intermediate_size = 12;
  model.vocab_size = 16;
  model.max_position_embeddings = 8;
  model.tie_word_embeddings = tied;
  return model;
}

LoraConfig saving(std::vector<std::string> names, std::vector<std::string> targets = {"all-linear"}) {
  LoraConfig lora;
  lora.rank = 2;
  lora.target_modules = std::move(targets);
  lora.modules_to_save = std::move(names);
  return lora;
}

std::vector<std::string> names_of_whole(const ModelSpec& model, const LoraConfig& lora) {
  std::vector<std::string> names;
  for (const NamedShape& parameter : whole_parameters(model, lora)) names.push_back(parameter.name);
  return names;
}

std::string complaint_about(const LoraConfig& lora, const ModelSpec& model) {
  try {
    validate(lora, model);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedModules, ANameIsTheEndOfTheFilesNames) {
  const ModelSpec llama = model_of(Family::llama), gpt2 = model_of(Family::gpt2, true);
  EXPECT_THAT(names_of_whole(llama, saving({})), IsEmpty());
  EXPECT_THAT(names_of_whole(llama, saving({"lm_head", "embed_tokens"})),
              ElementsAre("model.embed_tokens.weight", "lm_head.weight"));
  EXPECT_THAT(names_of_whole(llama, saving({"norm"})),
              ElementsAre("model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
                          "model.norm.weight"));
  EXPECT_THAT(names_of_whole(llama, saving({"model.norm"})), ElementsAre("model.norm.weight"));
  EXPECT_THAT(names_of_whole(gpt2, saving({"ln_f", "attn"})),
              ElementsAre("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias",
                          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.k_proj.bias",
                          "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.v_proj.bias",
                          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn.o_proj.bias",
                          "model.norm.weight", "model.norm.bias"));
  EXPECT_THAT(names_of_whole(model_of(Family::gpt_neox), saving({"lm_head"})), ElementsAre("lm_head.weight"));
}

TEST(SavedModules, ATiedWeightHasTheNamesOfBothModules) {
  for (const char* name : {"embed_tokens", "lm_head"}) {
    const LoraConfig lora = saving({name});
    EXPECT_THAT(names_of_whole(model_of(Family::llama, true), lora), ElementsAre("model.embed_tokens.weight"));
    EXPECT_TRUE(saves_tied_weight(lora, model_of(Family::llama, true)));
    EXPECT_FALSE(saves_tied_weight(lora, model_of(Family::llama, false)));
  }
  EXPECT_THAT(names_of_whole(model_of(Family::gpt2, true), saving({"wte"})), ElementsAre("model.embed_tokens.weight"));
}

TEST(SavedModules, WhatIsSavedHasNoAdapter) {
  const ModelSpec llama = model_of(Family::llama);
  const auto adapted = [&](std::vector<std::string> names) { return adapted_modules(saving(std::move(names)), llama); };
  EXPECT_THAT(adapted({"mlp", "o_proj"}), ElementsAre("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"));
  EXPECT_FALSE(has_adapter(saving({"mlp"}), llama, "mlp.up_proj"));
  EXPECT_EQ(adapted({"norm"}).size(), 7U);
}

TEST(SavedModules, WhatIsNoModuleIsRefused) {
  const ModelSpec llama = model_of(Family::llama);
  EXPECT_EQ(complaint_about(saving({"lm_head", "mlp"}), llama), "");
  EXPECT_EQ(complaint_about(saving({"lm_heads"}), llama),
            "lora.modules_to_save = 'lm_heads' is not a module of llama, or of some layers alone (use 'lm_head')");
  for (const char* name : {"", "layers.0.mlp", "layers.*.mlp", "score", "lora_A"})
    EXPECT_THAT(complaint_about(saving({name}), llama), HasSubstr(fmt::format("'{}' is not a module of llama", name)));
  EXPECT_THAT(complaint_about(saving({"q_proj"}, {"down_proj"}), model_of(Family::phi3)),
              HasSubstr("'q_proj' is a part of qkv_proj, which is one module in files of phi3 (use 'qkv_proj')"));
}

TEST(SavedModules, ThoseThatPeftWouldSaveInAnotherWayAreRefused) {
  const ModelSpec llama = model_of(Family::llama);
  for (const char* all : {"model", "model.layers"})
    EXPECT_THAT(complaint_about(saving({all}), llama), HasSubstr(fmt::format("'{}' leaves no layer of", all)));
  EXPECT_THAT(complaint_about(saving({"q_proj"}, {"q_proj"}), llama), HasSubstr("'q_proj' leaves no layer of"));
  EXPECT_THAT(complaint_about(saving({"proj"}), llama), HasSubstr("'proj' is the end of the name of self_attn.q_proj"));
  EXPECT_EQ(complaint_about(saving({"down_proj"}), llama), "");
  EXPECT_THAT(complaint_about(saving({"head"}), model_of(Family::llama, true)),
              HasSubstr("'head' is the end of the name of a tied head (use 'lm_head')"));
  EXPECT_EQ(complaint_about(saving({"head"}), llama), "");
  LoraConfig none;
  none.modules_to_save = {"lm_head"};
  EXPECT_THAT(complaint_about(none, llama), HasSubstr("[lora] does not apply"));
  EXPECT_THAT(complaint_about({.initial_load_path = "first"}, llama),
              HasSubstr("lora.initial_load_path = 'first' needs lora.rank and lora.alpha"));
}

}  // namespace
}  // namespace echelon
