#include "checkpoint/hf/config/unsupported.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

struct Telling {
  std::string_view field, meaning;
};

// The first that is set is named.
constexpr Telling telling[] = {
    {"vision_config", "a model of images and text"},
    {"audio_config", "a model of sound and text"},
    {"hybrid_override_pattern", "a hybrid of attention and Mamba"},
    {"mamba_d_state", "a hybrid of attention and Mamba"},
    {"ssm_state_size", "a hybrid of attention and Mamba"},
    {"mamba_num_heads", "a hybrid of attention and Mamba"},
    {"conv_L_cache", "a hybrid of attention and convolutions"},
    {"linear_num_key_heads", "a hybrid of attention and linear attention"},
    {"altup_num_inputs", "Gemma 3n, which mixes several residual streams"},
    {"hidden_size_per_layer_input", "a model with an embedding for every layer"},
    {"num_kv_shared_layers", "layers that share keys and values"},
    {"kv_lora_rank", "multi-head latent attention"},
    {"n_routed_experts", "a mixture of experts"},
    {"num_local_experts", "a mixture of experts"},
    {"num_experts", "a mixture of experts"},
    {"is_encoder_decoder", "an encoder with a decoder"},
    {"alibi", "positions by ALiBi"},
};

constexpr std::string_view with_sinks[] = {"gpt_oss"};

}  // namespace

void refuse_unsupported(const ConfigFields& config) {
  if (std::ranges::find(with_sinks, config.text("model_type")) != std::ranges::end(with_sinks))
    config.refuse("model_type", "has attention sinks, which are not supported");
  for (const std::string& type : config.texts("layer_types"))
    if (type != "full_attention" && type != "sliding_attention")
      config.refuse("layer_types", fmt::format("has {}, which is not supported", type));
  for (const auto& [field, meaning] : telling)
    if (!config.is_neutral(field, 0))
      config.refuse(field,
                    fmt::format("says that \"{}\" is {}, which is not supported", config.text("model_type"), meaning));
}

}  // namespace echelon
