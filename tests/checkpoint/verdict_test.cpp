// The verdict on folders that Echelon does not train: each field that says why.
#include "checkpoint/hf/inspect.h"
#include "family_configs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::family_configs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FolderVerdict verdict_on(const json& config) {
  const ScratchFolder scratch;
  put(scratch / "config.json", config.dump());
  return verdict_of(scratch.path());
}

// The telling fields of published configs.
TEST(Verdict, NamesTheFieldsOfOtherArchitectures) {
  const std::tuple<const char*, json, std::vector<std::string>> cases[] = {
      {"qwen3_next",
       {{"linear_num_key_heads", 16}, {"layer_types", {"linear_attention", "linear_attention", "full_attention"}}},
       {"layer_types = [\"linear_attention\"", "linear_num_key_heads = 16 says that \"qwen3_next\" is a hybrid of"}},
      {"qwen3_5",
       {{"vision_config", {{"depth", 27}}},
        {"text_config", {{"model_type", "qwen3_5_text"}, {"layer_types", {"linear_attention", "full_attention"}}}}},
       {"vision_config = ", "text_config.layer_types = "}},
      {"nemotron_h",
       {{"hybrid_override_pattern", "M-M*-"}, {"ssm_state_size", 128}},
       {"hybrid_override_pattern = \"M-M*-\"", "ssm_state_size = 128"}},
      {"lfm2",
       {{"conv_L_cache", 3}, {"layer_types", {"conv", "full_attention"}}},
       {"layer_types = [\"conv\",\"full_attention\"] has conv", "conv_L_cache = 3"}},
      {"gemma3n_text",
       {{"altup_num_inputs", 4}, {"num_kv_shared_layers", 15}},
       {"altup_num_inputs = 4 says that \"gemma3n_text\" is Gemma 3n", "num_kv_shared_layers = 15"}},
      {"gemma4_text",
       {{"hidden_size_per_layer_input", 256}},
       {"hidden_size_per_layer_input = 256 says that \"gemma4_text\" is a model with an embedding for every layer"}},
      {"gpt_oss",
       {{"num_local_experts", 32}, {"swiglu_limit", 7.0}},
       {"has attention sinks and experts with biases and a clamped SwiGLU, which are not supported"}},
      {"gpt_oss",
       {{"swiglu_limit", 7.0}, {"quantization_config", {{"quant_method", "mxfp4"}}}},
       {"has attention sinks and experts with biases and a clamped SwiGLU, in MXFP4, which are not supported"}},
      {"deepseek_v32",
       {{"kv_lora_rank", 512}, {"quantization_config", {{"quant_method", "fp8"}}}},
       {"quantization_config.quant_method = \"fp8\" is a kind of quantized weights", "multi-head latent attention"}},
      {"mamba2", {{"state_size", 128}}, {"state_size = 128 says that \"mamba2\" is a state-space model"}},
      {"t5", {{"is_encoder_decoder", true}}, {"an encoder with a decoder"}},
      {"qwen4", {}, {"model_type = \"qwen4\" is not supported; did you mean \"qwen"}}};
  for (const auto& [model_type, more, said] : cases) {
    const FolderVerdict verdict = verdict_on(config_of(model_type, more));
    EXPECT_EQ(verdict.model_type, model_type);
    ASSERT_EQ(verdict.missing.size(), said.size()) << model_type << ::testing::PrintToString(verdict.missing);
    for (const std::string& each : said) EXPECT_THAT(verdict.missing, ::testing::Contains(HasSubstr(each)));
  }
}

// Python writes Infinity, which JSON has not.
TEST(Verdict, ReadsNumbersThatAreNotFinite) {
  const ScratchFolder scratch;
  put(scratch / "config.json", R"({"model_type": "nemotron_h", "of": "\\\" [NaN", "time_step_limit": [0.0, Infinity],
                                   "low": -Infinity, "ssm_state_size": 128})");
  EXPECT_THAT(verdict_of(scratch.path()).missing, ElementsAre(HasSubstr("ssm_state_size = 128")));
  std::string llama = config_of("llama", {{"rope_theta", 7}}).dump();
  llama.replace(llama.find("\"rope_theta\":7"), 14, "\"rope_theta\":NaN");
  put(scratch / "config.json", llama);
  EXPECT_THAT(verdict_of(scratch.path()).missing, ElementsAre(HasSubstr("rope_theta = \"NaN\" is")));
}

// All that is wrong with a config of a family that is read otherwise, and the same first as when it is read.
TEST(Verdict, NamesEveryFaultOfAConfig) {
  const json config = config_of("llama", {{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}},
                                          {"alibi", true},
                                          {"hidden_act", "relu"},
                                          {"architectures", {"LlamaForTokenClassification"}}});
  const FolderVerdict verdict = verdict_on(config);
  EXPECT_THAT(verdict.missing, ElementsAre(HasSubstr("quantization_config.quant_method = \"awq\""),
                                           HasSubstr("LlamaForTokenClassification"), HasSubstr("alibi = true"),
                                           HasSubstr("hidden_act = \"relu\"")));
  EXPECT_EQ(refusal(config).substr(refusal(config).find(": ")),
            verdict.missing[0].substr(verdict.missing[0].find(": ")));
}

TEST(Verdict, SaysThatWeightsAreMissing) {
  EXPECT_THAT(verdict_on(config_of("llama", {})).missing, ElementsAre(HasSubstr("has neither model.safetensors")));
}

}  // namespace
}  // namespace echelon::family_configs
