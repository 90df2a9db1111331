// Checks of a model's sizes and choices.
#include "base/divisors.h"
#include "base/error.h"
#include "spec/families/family.h"
#include "spec/model_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

constexpr std::int64_t most_layers = 1 << 14;  // far above every model, and still quick to plan
constexpr double most_parameters = 1e15;       // byte counts fit in int64

// In floating point, since the sum may overflow int64.
void require_countable(const ModelSpec& m) {
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double heads = real(m.num_attention_heads) * real(m.head_dim);
  const double experts = real(m.mixture.num_experts + 1) *
                         (real(m.mixture.moe_intermediate_size) + real(m.mixture.shared_expert_intermediate_size));
  const double layer = real(m.hidden_size) * (4 * heads + 3 * (real(m.intermediate_size) + experts));
  const double bound = real(m.num_hidden_layers) * layer +
                       (2 * real(m.vocab_size) + real(m.max_position_embeddings)) * real(m.hidden_size);
  require(bound <= most_parameters,
          "[model] describes about {:.0e} parameters; make its sizes smaller, such as model.hidden_size = {}", bound,
          m.hidden_size);
}

void require_positive(std::string_view key, std::int64_t value) {
  require(value >= 1, "model.{} = {} is below 1 (use 1)", key, value);
}

void require_of_every_layer(const ModelSpec& m, std::string_view key, std::size_t count) {
  require(static_cast<std::int64_t>(count) == m.num_hidden_layers, "model.{} has {} entries for {} layers (use {})",
          key, count, m.num_hidden_layers, m.num_hidden_layers);
}

void validate_rope(const ModelSpec& m) {
  require(m.head_dim % 2 == 0, "model.head_dim = {} is odd, but RoPE rotates pairs (use {})", m.head_dim,
          m.head_dim + 1);
  require(m.partial_rotary_factor > 0 && m.partial_rotary_factor <= 1,
          "model.partial_rotary_factor = {} is not above 0 and at most 1 (use 1)", m.partial_rotary_factor);
  const std::int64_t even_dim = std::max<std::int64_t>(m.rotary_dim() - m.rotary_dim() % 2, 2);
  require(m.rotary_dim() == even_dim,
          "model.partial_rotary_factor = {} turns {} columns of a head, but RoPE rotates pairs (use {})",
          m.partial_rotary_factor, m.rotary_dim(), static_cast<double>(even_dim) / static_cast<double>(m.head_dim));
  for (const RopeSpec& rope : m.ropes()) validate(rope, "model.", m.rotary_dim() / 2);
  require(!m.has_growing_queries() || m.partial_rotary_factor == 1,
          "model.partial_rotary_factor = {} is not supported with rope_scaling.llama_4_scaling_beta (use 1)",
          m.partial_rotary_factor);
  if (!m.no_rope_layers.empty()) require_of_every_layer(m, "no_rope_layers", m.no_rope_layers.size());
}

// A model that cannot be written would train in vain.
void validate_windows(const ModelSpec& m) {
  const WindowFields fields = description_of(m.family).windows;
  const std::tuple<std::string_view, std::int64_t, bool> keys[] = {
      {"sliding_window", m.sliding_window, fields != WindowFields::none},
      {"max_window_layers", m.max_window_layers,
       m.sliding_window == 0 || fields == WindowFields::from_a_layer || fields == WindowFields::of_layers}};
  for (const auto& [key, value, is_sayable] : keys) {
    require(value >= 0, "model.{} = {} is below 0 (use 0)", key, value);
    require(value == 0 || is_sayable || !m.layer_types.empty(),
            "model.{} = {} is not supported: config.json of model_type = '{}' has none (use 0)", key, value,
            name_of(m.family));
  }
  if (m.layer_types.empty()) return;
  require_of_every_layer(m, "layer_types", m.layer_types.size());
  require(m.max_window_layers == 0, "model.max_window_layers = {} contradicts model.layer_types (use 0)",
          m.max_window_layers);
  const bool has_sliding = std::ranges::find(m.layer_types, LayerType::sliding_attention) != m.layer_types.end();
  require(has_sliding == (m.sliding_window > 0),
          "model.sliding_window = {} contradicts model.layer_types, which have {} with sliding_attention (use {})",
          m.sliding_window, has_sliding ? "layers" : "no layer", has_sliding ? "the model's, such as 4096" : "0");
}

void validate_norms(const ModelSpec& m) {
  require(!m.qk_norm_of_projection || m.qk_norm, "model.qk_norm_of_projection = true needs model.qk_norm = true");
  require(m.norm == NormKind::rms_norm || (!m.norm_adds_one && !m.norm_rounds_before_gain),
          "model.norm_adds_one and model.norm_rounds_before_gain are of RMSNorm, but the model has LayerNorm");
  require(m.clip_qkv == 0 || (m.qk_norm && !m.has_latents()),
          "model.clip_qkv = {} limits q, k and v after norms, and the model has none of q and k (use 0)", m.clip_qkv);
  require(!m.use_parallel_residual || m.norm_placement == NormPlacement::before,
          "model.use_parallel_residual = true needs norms before the branches (use false)");
}

// A multiplier of 0 would disconnect the model; a soft cap of 0 is none.
void validate_scales(const ModelSpec& m) {
  const std::tuple<std::string_view, double, double> keys[] = {{"embedding_multiplier", m.embedding_multiplier, 1},
                                                               {"residual_multiplier", m.residual_multiplier, 1},
                                                               {"logits_scaling", m.logits_scaling, 1}};
  for (const auto& [key, value, usual] : keys)
    require(value > 0 && std::isfinite(value), "model.{} = {} is not a number above 0 (use {})", key, value, usual);
  const std::pair<std::string_view, double> optional_keys[] = {{"attention_multiplier", m.attention_multiplier},
                                                               {"query_pre_attn_scalar", m.query_pre_attn_scalar},
                                                               {"clip_qkv", m.clip_qkv},
                                                               {"attn_logit_softcapping", m.attn_logit_softcapping},
                                                               {"final_logit_softcapping", m.final_logit_softcapping}};
  for (const auto& [key, value] : optional_keys)
    require(value >= 0 && std::isfinite(value), "model.{} = {} is not a number from 0 on (use 0)", key, value);
}

/// What config.json of the family cannot say would be lost when the model is saved.
void require_keys_of_mixture(const ModelSpec& m) {
  const MixtureFields& fields = *description_of(m.family).mixture;
  const auto require_key = [&](bool is_in_files, std::string_view key, std::int64_t value, std::int64_t usual) {
    require(is_in_files || value == usual,
            "model.{} = {} is not supported: config.json of model_type = '{}' has no key for it (use {})", key, value,
            name_of(m.family), usual);
  };
  require_key(fields.is_of_deepseek, "n_group", m.mixture.n_group, 1);
  require_key(fields.is_of_deepseek, "topk_group", m.mixture.topk_group, 1);
  require_key(fields.is_of_deepseek, "first_k_dense_replace", m.mixture.first_k_dense_replace, 0);
  require_key(fields.has_dense_layers, "decoder_sparse_step", m.mixture.decoder_sparse_step, 1);
  require(fields.has_dense_layers || m.mixture.mlp_only_layers.empty(),
          "model.mlp_only_layers = [{}] is not supported: config.json of model_type = '{}' has no key for it (use [])",
          fmt::join(m.mixture.mlp_only_layers, ", "), name_of(m.family));
}

void validate_mixture(const ModelSpec& m) {
  const bool has_experts = description_of(m.family).mixture.has_value();
  require(has_experts || m.mixture.num_experts == 0,
          "model.num_experts = {} is not supported: config.json of model_type = '{}' has none (use 0, or model_type = "
          "'mixtral')",
          m.mixture.num_experts, name_of(m.family));
  require(!has_experts || m.mixture.exists(),
          "model.num_experts = {}: models of model_type = '{}' have experts (use 8)", m.mixture.num_experts,
          name_of(m.family));
  if (!has_experts) return;
  require_keys_of_mixture(m);
  for (const std::int64_t layer : m.mixture.mlp_only_layers)
    require(layer >= 0 && layer < m.num_hidden_layers,
            "model.mlp_only_layers = [{}] names layer {}, which is not between 0 and {} (use {})",
            fmt::join(m.mixture.mlp_only_layers, ", "), layer, m.num_hidden_layers - 1,
            std::clamp<std::int64_t>(layer, 0, m.num_hidden_layers - 1));
  validate(m.mixture);
  require(m.mlp == MlpKind::swiglu && !m.mlp_bias,
          "model.mechanisms has an mlp or mlp_bias that experts do not have: they are SwiGLUs without biases");
  const std::int64_t shared = m.mixture.shared_expert_intermediate_size, of_one = m.mixture.moe_intermediate_size;
  require(!m.mixture.gates_shared_expert || shared > 0,
          "model.shared_expert_intermediate_size = 0: models of model_type = '{}' have a shared expert (use {})",
          name_of(m.family), m.intermediate_size);
  require(!description_of(m.family).mixture->is_of_deepseek || (shared > 0 && shared % of_one == 0),
          "model.shared_expert_intermediate_size = {} is not a multiple of model.moe_intermediate_size = {}, as "
          "config.json counts shared experts (use {})",
          shared, of_one, std::max<std::int64_t>(1, shared / of_one) * of_one);
}

void validate_latents(const ModelSpec& m) {
  const bool is_of_family = description_of(m.family).has_latents;
  require(m.has_latents() == is_of_family, "model.mechanisms has kv_lora_rank = {} in a model of family {} (use {})",
          m.kv_lora_rank, name_of(m.family), is_of_family ? "512" : "0");
  if (!is_of_family) return;
  require(m.q_lora_rank >= 0, "model.mechanisms has q_lora_rank = {}, which is below 0 (use 0)", m.q_lora_rank);
  require(m.num_key_value_heads == m.num_attention_heads,
          "model.num_key_value_heads = {} differs from model.num_attention_heads, but each head has keys of its own "
          "(use {})",
          m.num_key_value_heads, m.num_attention_heads);
  require(m.qk_rope_head_dim >= 2 && m.qk_rope_head_dim % 2 == 0 && m.qk_rope_head_dim < m.head_dim,
          "model.mechanisms has qk_rope_head_dim = {}, which is no even number below model.head_dim = {} (use {})",
          m.qk_rope_head_dim, m.head_dim, std::max<std::int64_t>(2, m.head_dim / 6 * 2));
  require(m.v_head_dim >= 1 && m.v_head_dim <= m.head_dim,
          "model.mechanisms has v_head_dim = {}, which is not from 1 to model.head_dim = {} (use {})", m.v_head_dim,
          m.head_dim, m.head_dim);
}

}  // namespace

void validate(const ModelSpec& m) {
  // As config.json is read, so that what was trained can be read again.
  const std::tuple<std::string_view, std::int64_t, std::int64_t> sizes[] = {
      {"hidden_size", m.hidden_size, max_width},
      {"num_hidden_layers", m.num_hidden_layers, max_rows},  // of which most_layers are allowed, below
      {"num_attention_heads", m.num_attention_heads, max_heads},
      {"num_key_value_heads", m.num_key_value_heads, max_heads},
      {"head_dim", m.head_dim, max_heads},
      {"intermediate_size", m.intermediate_size, max_width},
      {"vocab_size", m.vocab_size, max_rows},
      {"max_position_embeddings", m.max_position_embeddings, max_rows},
  };
  for (const auto& [key, value, most] : sizes) {
    require_positive(key, value);
    require(value <= most, "model.{} = {} is too large; at most {}", key, value, most);
  }
  require(m.num_hidden_layers <= most_layers, "model.num_hidden_layers = {} is above {} (use {})", m.num_hidden_layers,
          most_layers, most_layers);
  require_countable(m);
  require(m.num_attention_heads % m.num_key_value_heads == 0,
          "model.num_key_value_heads = {} does not divide model.num_attention_heads = {} (use {})",
          m.num_key_value_heads, m.num_attention_heads, closest_divisor(m.num_attention_heads, m.num_key_value_heads));
  require(m.norm_eps > 0 && m.norm_eps < 1, "model.{} = {} is not between 0 and 1 (use 1e-05, the usual value)",
          m.norm == NormKind::layer_norm ? "layer_norm_epsilon" : "rms_norm_eps", m.norm_eps);
  require(m.initializer_range > 0 && m.initializer_range < 10,
          "model.initializer_range = {} is not above 0 and at most 10 (use 0.02, the usual value)",
          m.initializer_range);
  validate_latents(m);
  validate_windows(m);
  validate_mixture(m);
  validate_norms(m);
  validate_scales(m);
  if (m.position == PositionKind::rope) return validate_rope(m);
  require(m.no_rope_layers.empty() && !m.sliding_rope && m.partial_rotary_factor == 1.0,
          "model.model_type = '{}' has no RoPE that layers could differ in", name_of(m.family));
}

}  // namespace echelon
