#include "checkpoint/hf/config/unsupported.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

struct Telling {
  std::string_view field, meaning;
};

constexpr Telling telling[] = {
    {"hybrid_override_pattern", "a hybrid of attention and Mamba"},
    {"mamba_d_state", "a hybrid of attention and Mamba"},
    {"ssm_state_size", "a hybrid of attention and Mamba"},
    {"mamba_num_heads", "a hybrid of attention and Mamba"},
    {"state_size", "a state-space model"},
    {"attention_hidden_size", "a model without attention"},
    {"lru_width", "a hybrid of attention and recurrence"},
    {"conv_L_cache", "a hybrid of attention and convolutions"},
    {"linear_num_key_heads", "a hybrid of attention and linear attention"},
    {"attn_type_list", "a hybrid of attention and linear attention"},
    {"altup_num_inputs", "Gemma 3n, which mixes several residual streams"},
    {"hidden_size_per_layer_input", "a model with an embedding for every layer"},
    {"num_kv_shared_layers", "layers that share keys and values"},
    {"kv_lora_rank", "multi-head latent attention of another family"},
    {"index_topk", "sparse attention"},
    {"add_swa_attention_sink_bias", "attention sinks"},
    {"swiglu_limit", "a model with a clamped SwiGLU"},
    {"n_routed_experts", "a mixture of experts of another family"},
    {"num_local_experts", "a mixture of experts of another family"},
    {"num_experts", "a mixture of experts of another family"},
    {"is_encoder_decoder", "an encoder with a decoder"},
    {"alibi", "positions by ALiBi"},
    {"vision_config", "a model of images and text"},
    {"audio_config", "a model of sound and text"},
};

constexpr std::string_view gpt_oss = "gpt_oss";  // has all that is missing, whatever its fields say

std::string refusal_of_quantization(const ConfigFields& config, std::string_view key) {
  const ConfigFields quantization = config.object(key);
  if (!quantization.has("quant_method"))
    return config.refusal(key, "is not supported; convert the weights to bfloat16 first");
  return quantization.refusal(
      "quant_method", "is a kind of quantized weights, which are not supported; convert them to bfloat16 first");
}

std::string refusal_of_gpt_oss(const ConfigFields& config) {
  const bool is_quantized = config.has("quantization_config");
  return config.refusal("model_type", fmt::format("has attention sinks and experts with biases and a clamped SwiGLU{}, "
                                                  "which are not supported",
                                                  is_quantized ? ", in MXFP4" : ""));
}

void add_fields_of_other_families(const ConfigFields& config, std::vector<std::string>& refusals) {
  const std::string model_type = config.text("model_type");
  std::set<std::string> types;
  for (const std::string& type : config.texts("layer_types"))
    if (type != "full_attention" && type != "sliding_attention" && types.insert(type).second)
      refusals.push_back(config.refusal("layer_types", fmt::format("has {}, which is not supported", type)));
  for (const auto& [field, meaning] : telling)
    if (!config.is_neutral(field, 0))
      refusals.push_back(
          config.refusal(field, fmt::format("says that \"{}\" is {}, which is not supported", model_type, meaning)));
}

}  // namespace

std::vector<std::string> unsupported_fields_of(const ConfigFields& config, bool is_family) {
  if (config.has("model_type") && config.text("model_type") == gpt_oss) return {refusal_of_gpt_oss(config)};
  std::vector<std::string> refusals;
  for (const char* key : {"quantization_config", "compression_config"})
    if (config.has(key)) refusals.push_back(refusal_of_quantization(config, key));
  if (is_family) return refusals;
  add_fields_of_other_families(config, refusals);
  // The language model of a model of several kinds of input.
  const ConfigFields text = config.object("text_config");
  if (text.has("model_type")) add_fields_of_other_families(text, refusals);
  return refusals;
}

}  // namespace echelon
