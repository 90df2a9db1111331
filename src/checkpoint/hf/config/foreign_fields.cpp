#include "checkpoint/hf/config/foreign_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

/// null, false, an empty list and `neutral` change nothing.
struct ForeignField {
  std::string_view key;
  double neutral = 0;
};

constexpr ForeignField foreign_fields[] = {
    // Scales and caps (Gemma, Granite, Cohere, MiniCPM, Falcon H1)
    {"attn_logit_softcapping"},
    {"final_logit_softcapping"},
    {"query_pre_attn_scalar"},
    {"attention_multiplier"},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"scale_emb", 1},
    {"scale_depth"},
    {"mup_width_multiplier"},
    {"lm_head_multiplier", 1},
    // Attention
    {"clip_qkv"},
    {"qk_layernorm"},
    {"use_qk_norm"},
    {"kv_lora_rank"},
    {"q_lora_rank"},
    {"attention_chunk_size"},
    {"attn_temperature_tuning"},
    {"use_bidirectional_attention"},
    {"use_attention_sinks"},
    {"alibi"},
    {"no_rope_layers"},
    {"no_rope_layer_interval"},
    {"rope_local_base_freq"},
    {"rotary_pct", 1},
    // Blocks
    {"use_parallel_residual"},
    {"parallel_attn"},
    {"parallel_residual"},
    {"num_experts"},
    {"num_local_experts"},
    {"n_routed_experts"},
    {"router_jitter_noise"},
    {"num_kv_shared_layers"},
    {"hidden_size_per_layer_input"},
    {"mamba_d_state"},
    {"linear_num_key_heads"},
    {"vision_config"},
    {"audio_config"},
};

bool is_of_rope(std::string_view key, const RopeFields& rope) {
  return key == rope.partial || key == rope.theta_of_windows ||
         (rope.no_rope_interval > 0 && key.starts_with("no_rope_layer"));
}

bool is_of_mixture(std::string_view key, const std::optional<MixtureFields>& mixture) {
  return mixture && (mixture->num_experts == key || mixture->also_num_experts == key);
}

bool is_own(std::string_view key, const FamilyDescription& family) {
  if (family.has_latents && key.ends_with("_lora_rank")) return true;
  return is_of_rope(key, family.rope) || is_of_mixture(key, family.mixture) ||
         std::ranges::any_of(family.fields, [&](const FamilyField& field) {
           return std::visit([&](const auto& own) { return own.key == key; }, field);
         });
}

}  // namespace

std::vector<std::string> foreign_fields_of(const ConfigFields& config, const FamilyDescription& family) {
  std::vector<std::string> refusals;
  for (const auto& [key, neutral] : foreign_fields)
    if (!is_own(key, family) && !config.is_neutral(key, neutral))
      refusals.push_back(config.refusal(
          key, fmt::format("would change the computation and is not supported for model_type \"{}\" (use null)",
                           family.model_type)));
  return refusals;
}

}  // namespace echelon
