// config.json as transformers writes it, in both of its dialects. Unsupported features are refused by name.
#include "checkpoint/model_reader.h"

#include "base/error.h"
#include "scratch_folder.h"
#include "spec/families/family.h"
#include "tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json llama() {
  return json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.03,
    "intermediate_size": 96, "max_position_embeddings": 128, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 100})");
}

json qwen2() {
  json config = llama();
  config["model_type"] = "qwen2";
  config.update({{"use_sliding_window", false}, {"sliding_window", 4096}, {"max_window_layers", 1}});
  config.erase("attention_bias");
  return config;
}

json gpt2() {
  return json::parse(
      R"({"activation_function": "gelu_new", "attn_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-06, "model_type": "gpt2",
    "n_ctx": 128, "n_embd": 64, "n_head": 4, "n_inner": null, "n_layer": 3, "n_positions": 128, "scale_attn_weights": true, "vocab_size": 100})");
}

ModelSpec read(const json& config) {
  const ScratchFolder scratch;
  put(scratch / "config.json", config.dump());
  return read_model_spec(scratch.path());
}

json changed(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

TEST(ReadModelSpec, Llama) {
  ModelSpec expected = family_defaults(Family::llama);
  expected.hidden_size = 64;
  expected.num_hidden_layers = 2;
  expected.num_attention_heads = 4;
  expected.num_key_value_heads = 2;
  expected.head_dim = 16;
  expected.intermediate_size = 96;
  expected.vocab_size = 100;
  expected.max_position_embeddings = 128;
  expected.norm_eps = 1e-5;
  expected.rope_theta = 500000;
  expected.initializer_range = 0.03;
  EXPECT_EQ(read(llama()), expected);
  expected.tie_word_embeddings = true;
  expected.head_dim = 32;
  EXPECT_EQ(read(changed(changed(llama(), "tie_word_embeddings", true), "head_dim", 32)), expected);
}

TEST(ReadModelSpec, RopeInBothDialects) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 4.0},
                        {"low_freq_factor", 1.5},
                        {"high_freq_factor", 3.0},
                        {"original_max_position_embeddings", 64}};
  const RopeScaling expected{
      .factor = 4, .low_freq_factor = 1.5, .high_freq_factor = 3, .original_max_position_embeddings = 64};
  EXPECT_EQ(read(changed(llama(), "rope_scaling", scaling)).rope_scaling, expected);
  json parameters = changed(scaling, "rope_theta", 7000.0);
  const json newer = without(without(changed(llama(), "rope_parameters", parameters), "rope_theta"), "rope_scaling");
  EXPECT_EQ(read(newer).rope_scaling, expected);
  EXPECT_EQ(read(newer).rope_theta, 7000);
  parameters = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  EXPECT_EQ(read(changed(newer, "rope_parameters", parameters)).rope_scaling, std::nullopt);
  EXPECT_EQ(read(changed(newer, "rope_parameters", parameters)).rope_theta, 7000);
  EXPECT_EQ(read(without(llama(), "rope_theta")).rope_theta, 10000);
}

TEST(ReadModelSpec, Qwen) {
  const ModelSpec two = read(qwen2());
  EXPECT_TRUE(two.qkv_bias && !two.o_bias && !two.qk_norm);
  EXPECT_EQ(two.head_dim, 16);
  // No layer has a sliding window.
  EXPECT_NO_THROW((void)read(changed(changed(qwen2(), "use_sliding_window", true), "max_window_layers", 2)));
  const json windowed = changed(qwen2(), "use_sliding_window", true);
  EXPECT_EQ(read(windowed).windows(), (std::vector<std::int64_t>{0, 4096}));
  EXPECT_EQ(read(changed(windowed, "max_window_layers", 0)).windows(), std::vector<std::int64_t>{4096});
  EXPECT_EQ(read(changed(windowed, "sliding_window", nullptr)).windows(), std::vector<std::int64_t>{0});
  EXPECT_EQ(read(without(windowed, "sliding_window")).windows(), (std::vector<std::int64_t>{0, 4096}));
  // layer_types repeats max_window_layers, or replaces it.
  EXPECT_EQ(
      read(changed(changed(windowed, "max_window_layers", 2), "layer_types", {"full_attention", "sliding_attention"})),
      read(windowed));
  EXPECT_EQ(read(changed(windowed, "layer_types", {"sliding_attention", "full_attention"})).windows(),
            (std::vector<std::int64_t>{4096, 0}));
  const ModelSpec three = read(changed(llama(), "model_type", "qwen3"));
  EXPECT_TRUE(three.qk_norm && !three.qkv_bias);
  EXPECT_EQ(three.head_dim, 128);  // the family's default, whatever the hidden size
}

TEST(ReadModelSpec, Mistral) {
  const json config = changed(llama(), "model_type", "mistral");
  EXPECT_EQ(read(changed(config, "sliding_window", 5)).windows(), std::vector<std::int64_t>{5});
  EXPECT_EQ(read(changed(config, "sliding_window", nullptr)).windows(), std::vector<std::int64_t>{0});
  EXPECT_EQ(read(config).sliding_window, 4096);  // the default of transformers
}

TEST(ReadModelSpec, Gpt2) {
  const ModelSpec model = read(gpt2());
  EXPECT_EQ(model.hidden_size, 64);
  EXPECT_EQ(model.intermediate_size, 256);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.num_key_value_heads, 4);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_TRUE(model.tie_word_embeddings && model.qkv_bias && model.o_bias && model.mlp_bias);
  EXPECT_EQ(read(changed(gpt2(), "n_inner", 100)).intermediate_size, 100);
}

TEST(ReadModelSpec, RefusesByName) {
  const json unknown = {{"rope_type", "ntk"}, {"factor", 4.0}};
  const std::pair<json, std::string> cases[] = {
      {changed(llama(), "model_type", "lama"), "did you mean \"llama\"?"},
      {without(llama(), "model_type"), "\"model_type\""},
      {without(llama(), "hidden_size"), "no field \"hidden_size\""},
      {changed(llama(), "hidden_size", "64"), "hidden_size = \"64\" is not a whole number"},
      {changed(llama(), "hidden_size", -64), "hidden_size = -64"},
      {changed(llama(), "hidden_size", 64.5), "hidden_size = 64.5"},
      {changed(llama(), "num_hidden_layers", 2'000'000'000), "num_hidden_layers = 2000000000"},
      {changed(llama(), "hidden_size", 66), "num_attention_heads = 4 does not divide hidden_size = 66"},
      {changed(llama(), "num_key_value_heads", 3), "num_key_value_heads"},
      {changed(llama(), "hidden_act", "relu"), "hidden_act = \"relu\""},
      {changed(llama(), "mlp_bias", "no"), "mlp_bias = \"no\""},
      {changed(llama(), "rope_scaling", unknown), "rope_scaling.rope_type = \"ntk\""},
      {changed(llama(), "rope_parameters", unknown), "rope_parameters.rope_type = \"ntk\""},
      {changed(llama(), "rope_scaling", {{"type", "linaer"}, {"factor", 2.0}}), "rope_scaling.type = \"linaer\""},
      {changed(llama(), "rope_scaling", {{"factor", 2.0}}), "rope_scaling.rope_type"},
      {changed(llama(), "rope_scaling", {{"rope_type", "llama3"}}), "rope_scaling.factor"},
      {changed(llama(), "rope_scaling", 4), "rope_scaling = 4"},
      {changed(llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor = 0.5"},
      {changed(llama(), "quantization_config", {{"bits", 4}}), "quantization_config"},
      {changed(qwen2(), "layer_types", {"full_attention", "sliding_attention"}), "the model has no sliding_window"},
      {changed(qwen2(), "layer_types", {"full_attention"}), "is no list of all 2 layers"},
      {changed(changed(qwen2(), "use_sliding_window", true), "sliding_window", 0), "sliding_window = 0"},
      {changed(llama(), "layer_types", {"sliding_attention", "full_attention"}), "sliding_attention"},
      {changed(gpt2(), "activation_function", "relu"), "activation_function = \"relu\""},
      {changed(gpt2(), "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx = true"},
      {changed(gpt2(), "n_head", 5), "n_head = 5 does not divide"},
      {changed(llama(), "architectures", {"LlamaForSequenceClassification"}), "LlamaForSequenceClassification"},
      {json::array(), "not a JSON object"},
  };
  for (const auto& [config, said] : cases) {
    EXPECT_THAT(error_of([&, &config = config] { (void)read(config); }), HasSubstr(said));
    EXPECT_THAT(error_of([&, &config = config] { (void)read(config); }), HasSubstr("config.json"));
  }
  const ScratchFolder scratch;
  EXPECT_THAT(error_of([&] { (void)read_model_spec(scratch / "nowhere"); }), HasSubstr("nowhere is not a folder"));
}

TEST(WriteModelConfig, IsReadBackEqual) {
  const ScratchFolder scratch;
  for (const Family family :
       {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3, Family::mistral, Family::mixtral, Family::qwen3_moe,
        Family::dots1, Family::olmoe, Family::qwen2_moe, Family::deepseek_v2, Family::deepseek_v3})
    for (const bool tied : {false, true}) {
      ModelSpec model = tiny_model(family, tied);
      model.norm_eps = 3e-6;
      model.initializer_range = 0.01;
      if (family == Family::llama) model.rope_scaling = RopeScaling{.factor = 2, .original_max_position_embeddings = 4};
      if (family != Family::gpt2) model.rope_theta = 1234.5;
      if (tied && description_of(family).windows != WindowFields::none) model.sliding_window = 3;
      if (tied && description_of(family).windows == WindowFields::from_a_layer) model.max_window_layers = 1;
      write_model_config(scratch.path(), model, {.dtype = DType::bfloat16, .tokens = {.bos = 3, .eos = 5}});
      EXPECT_EQ(read_model_spec(scratch.path()), model);
      const json written = json::parse(get(scratch / "config.json"));
      EXPECT_EQ(written.at("torch_dtype"), "bfloat16");
      EXPECT_EQ(written.at("bos_token_id"), 3);
      EXPECT_EQ(written.at("eos_token_id"), 5);
      EXPECT_TRUE(written.at("pad_token_id").is_null());  // else transformers takes that of a published model
    }
}

// As transformers' DeepseekV3Config has them.
TEST(ReadModelSpec, AbsentChoicesOfDeepSeekV3AreThoseOfThePublishedModel) {
  const ScratchFolder scratch;
  const ModelSpec model = preset("deepseek-v3");
  write_model_config(scratch.path(), model, {});
  json config = json::parse(get(scratch / "config.json"));
  for (const char* key : {"n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob", "first_k_dense_replace"})
    config.erase(key);
  EXPECT_EQ(read(config), model);
}

// transformers ignores these fields, but DeepSeek's own code reads them.
TEST(ReadModelSpec, RefusesOtherChoicesOfDeepSeekThanIsComputed) {
  for (const auto& [name, values] :
       {std::pair<const char*, json>{"deepseek-v3",
                                     {{"scoring_func", "softmax"}, {"topk_method", "greedy"}, {"moe_layer_freq", 2}}},
        {"deepseek-v2-lite", {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}, {"moe_layer_freq", 2}}}}) {
    const ScratchFolder scratch;
    write_model_config(scratch.path(), preset(name), {});
    const json config = json::parse(get(scratch / "config.json"));
    for (const auto& [key, value] : values.items())
      EXPECT_THAT(error_of([&, &key = key, &value = value] { (void)read(changed(config, key, value)); }),
                  HasSubstr(fmt::format("{} = {}", key, value.dump())))
          << name;
    EXPECT_THAT(error_of([&] { (void)read(changed(config, "moe_layer_freq", 2)); }),
                HasSubstr("moe_layer_freq = 2 is not supported (use 1)"));
  }
}

TEST(WriteModelConfig, KeepsTheSequenceLengthOfTraining) {
  const ScratchFolder scratch;
  ModelSpec model = tiny_model(Family::llama, true);
  write_model_config(scratch.path(), model, {.training = {.seq_len = 5}});
  EXPECT_EQ(read_training_seq_len(scratch.path()), 5);
  write_model_config(scratch.path(), model, {});
  EXPECT_EQ(read_training_seq_len(scratch.path()), model.max_position_embeddings);
  model.max_position_embeddings = 131072;
  write_model_config(scratch.path(), model, {});
  EXPECT_EQ(read_training_seq_len(scratch.path()), 8192);
}

TEST(WriteModelConfig, KeepsTheCapacityOfExpertsInTraining) {
  const ScratchFolder scratch;
  const ModelSpec model = preset("mixtral-30m");
  write_model_config(scratch.path(), model, {.training = {.capacity_factor = 1.25}});
  EXPECT_EQ(read_capacity_factor(scratch.path()), 1.25);
  EXPECT_EQ(note_of_capacity(1.25), "no row is dropped: moe.capacity_factor = 1.25 is for training");
  write_model_config(scratch.path(), model, {});
  EXPECT_EQ(read_capacity_factor(scratch.path()), 0);
  EXPECT_EQ(note_of_capacity(0), "");
}

TEST(WriteModelConfig, RefusesWhatTheFamilyCannotSay) {
  const ScratchFolder scratch;
  ModelSpec model = tiny_model(Family::llama, false);
  model.qkv_bias = true;
  EXPECT_THAT(error_of([&] { write_model_config(scratch.path(), model, {}); }), HasSubstr("family llama"));
  model = tiny_model(Family::gpt2, true);
  model.num_key_value_heads = 1;
  EXPECT_THAT(error_of([&] { write_model_config(scratch.path(), model, {}); }), HasSubstr("num_key_value_heads = 1"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "config.json"));
}

}  // namespace
}  // namespace echelon
