// Parameter counts and checks of a model's sizes.
#include "spec/model_spec.h"

#include "base/error.h"
#include "spec/families/family.h"

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

// The divisor of `whole` that is closest to `wanted`; of two, the smaller.
std::int64_t closest_divisor(std::int64_t whole, std::int64_t wanted) {
  for (std::int64_t distance = 0; distance < whole; ++distance) {
    if (wanted - distance >= 1 && whole % (wanted - distance) == 0) return wanted - distance;
    if (wanted + distance <= whole && whole % (wanted + distance) == 0) return wanted + distance;
  }
  return 1;
}

void validate_rope(const ModelSpec& m) {
  require(m.head_dim % 2 == 0, "model.head_dim = {} is odd, but RoPE rotates pairs (use {})", m.head_dim,
          m.head_dim + 1);
  require(m.rope_theta > 1 && std::isfinite(m.rope_theta),
          "model.rope_theta = {} is not a number above 1 (use 10000, the usual value)", m.rope_theta);
  if (!m.rope_scaling) return;
  const RopeScaling& s = *m.rope_scaling;
  require(s.factor >= 1 && std::isfinite(s.factor), "model.rope_scaling.factor = {} is not a number from 1 on (use 1)",
          s.factor);
  require(s.low_freq_factor > 0, "model.rope_scaling.low_freq_factor = {} is not above 0 (use 1, the usual value)",
          s.low_freq_factor);
  require(s.high_freq_factor > s.low_freq_factor && std::isfinite(s.high_freq_factor),
          "model.rope_scaling.high_freq_factor = {} is not above low_freq_factor = {} (use 4, the usual value)",
          s.high_freq_factor, s.low_freq_factor);
  require_positive("rope_scaling.original_max_position_embeddings", s.original_max_position_embeddings);
}

// A model that cannot be written would train in vain.
void validate_windows(const ModelSpec& m) {
  const WindowFields fields = description_of(m.family).windows;
  const std::tuple<std::string_view, std::int64_t, bool> keys[] = {
      {"sliding_window", m.sliding_window, fields != WindowFields::none},
      {"max_window_layers", m.max_window_layers, m.sliding_window == 0 || fields == WindowFields::from_a_layer}};
  for (const auto& [key, value, is_sayable] : keys) {
    require(value >= 0, "model.{} = {} is below 0 (use 0)", key, value);
    require(value == 0 || is_sayable,
            "model.{} = {} is not supported: config.json of model_type = '{}' has none (use 0)", key, value,
            name_of(m.family));
  }
}

void validate_mixture(const ModelSpec& m) {
  const bool has_experts = description_of(m.family).mixture.has_value();
  require(has_experts || !m.mixture.exists(),
          "model.num_experts = {} is not supported: config.json of model_type = '{}' has none (use 0, or model_type = "
          "'mixtral')",
          m.mixture.num_experts, name_of(m.family));
  require(!has_experts || m.mixture.exists(), "model.num_experts = 0: models of model_type = '{}' have experts (use 8)",
          name_of(m.family));
  if (has_experts) validate(m.mixture);
}

}  // namespace

std::int64_t ModelSpec::num_parameters() const {
  const std::int64_t D = hidden_size, F = intermediate_size, Q = num_attention_heads * head_dim,
                     KV = num_key_value_heads * head_dim;
  const std::int64_t norm_size = norm == NormKind::layer_norm ? 2 * D : D;
  const std::int64_t num_up = mlp == MlpKind::swiglu ? 2 : 1;  // gate and up, or up alone

  std::int64_t layer = 2 * norm_size + D * (Q + 2 * KV) + Q * D + (num_up + 1) * D * F;
  if (qkv_bias) layer += Q + 2 * KV;
  if (output_bias) layer += D + num_up * F + D;
  if (qk_norm) layer += 2 * head_dim;

  const std::int64_t positions = position == PositionKind::learned ? max_position_embeddings * D : 0;
  const std::int64_t head = tie_word_embeddings ? 0 : vocab_size * D;
  const std::int64_t mixtures = mixture.num_layers_of(num_hidden_layers),
                     instead = mixture.num_parameters(D, mixture.num_experts) - (num_up + 1) * D * F;
  return vocab_size * D + positions + num_hidden_layers * layer + mixtures * instead + norm_size + head;
}

std::int64_t ModelSpec::num_active_parameters() const {
  const std::int64_t unused = mixture.num_parameters(hidden_size, mixture.num_experts) -
                              mixture.num_parameters(hidden_size, mixture.num_experts_per_tok);
  return num_parameters() - (mixture.exists() ? mixture.num_layers_of(num_hidden_layers) * unused : 0);
}

std::int64_t ModelSpec::narrowest_mlp() const {
  return mixture.exists() ? std::min(intermediate_size, mixture.narrowest()) : intermediate_size;
}

std::int64_t ModelSpec::end_of_windows_from(std::int64_t layer) const {
  return sliding_window > 0 && layer < max_window_layers ? std::min(max_window_layers, num_hidden_layers)
                                                         : num_hidden_layers;
}

std::vector<std::int64_t> ModelSpec::windows() const {
  std::vector<std::int64_t> all;
  for (std::int64_t layer = 0; layer < num_hidden_layers; layer = end_of_windows_from(layer))
    if (std::find(all.begin(), all.end(), window_of(layer)) == all.end()) all.push_back(window_of(layer));
  return all;
}

void validate(const ModelSpec& m) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"hidden_size", m.hidden_size},
      {"num_hidden_layers", m.num_hidden_layers},
      {"num_attention_heads", m.num_attention_heads},
      {"num_key_value_heads", m.num_key_value_heads},
      {"head_dim", m.head_dim},
      {"intermediate_size", m.intermediate_size},
      {"vocab_size", m.vocab_size},
      {"max_position_embeddings", m.max_position_embeddings},
  };
  for (const auto& [key, value] : sizes) {
    require_positive(key, value);
    require(value <= (std::int64_t{1} << 31) - 1, "model.{} = {} is too large; at most {}", key, value,
            (std::int64_t{1} << 31) - 1);
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
          "model.initializer_range = {} is not between 0 and 10 (use 0.02, the usual value)", m.initializer_range);
  validate_windows(m);
  validate_mixture(m);
  if (m.position == PositionKind::rope) validate_rope(m);
}

double model_flops_per_token(const ModelSpec& m, std::int64_t seq_len) {
  const std::int64_t looked_up = (m.tie_word_embeddings ? 0 : m.vocab_size) +
                                 (m.position == PositionKind::learned ? m.max_position_embeddings : 0);
  const std::int64_t N = m.num_active_parameters() - looked_up * m.hidden_size;
  std::int64_t keys = 0;  // of one token in all layers
  for (std::int64_t layer = 0; layer < m.num_hidden_layers;) {
    const std::int64_t end = m.end_of_windows_from(layer), window = m.window_of(layer);
    keys += (end - layer) * (window == 0 ? seq_len : std::min(window, seq_len));
    layer = end;
  }
  return 6.0 * static_cast<double>(N) +
         12.0 * static_cast<double>(m.num_attention_heads * m.head_dim) * static_cast<double>(keys);
}

}  // namespace echelon
