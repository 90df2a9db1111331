// Layers and parameter counts of a model.
#include "spec/model_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace echelon {
namespace {

// Patterns of layers repeat.
template <class T>
void repeat_to(std::vector<T>& list, std::int64_t count) {
  const std::size_t known = list.size();
  list.resize(static_cast<std::size_t>(known == 0 ? 0 : count));
  for (std::size_t i = known; i < list.size(); ++i) list[i] = list[i % known];
}

}  // namespace

std::int64_t ModelSpec::num_attention_parameters() const {
  const std::int64_t D = hidden_size, H = num_attention_heads, Q = H * head_dim, KV = num_key_value_heads * head_dim;
  if (has_latents()) {
    const std::int64_t L = kv_lora_rank, R = qk_rope_head_dim,
                       of_q = q_lora_rank > 0 ? q_lora_rank * (D + 1 + Q) : D * Q;
    return of_q + D * (L + R) + L + L * H * (head_dim - R + v_head_dim) + H * v_head_dim * D;
  }
  std::int64_t sum = D * (Q + 2 * KV) + Q * D;
  if (qkv_bias) sum += Q + 2 * KV;
  if (o_bias) sum += D;
  if (qk_norm) sum += qk_norm_of_projection ? Q + KV : 2 * head_dim;
  return sum;
}

std::int64_t ModelSpec::num_parameters() const {
  const std::int64_t D = hidden_size, F = intermediate_size;
  const std::int64_t norm_size = norm == NormKind::layer_norm ? 2 * D : D;
  const std::int64_t num_up = is_gated(mlp) ? 2 : 1;  // gate and up, or up alone

  const std::int64_t num_norms = norm_placement == NormPlacement::both ? 4 : 2;
  std::int64_t layer = num_norms * norm_size + num_attention_parameters() + (num_up + 1) * D * F;
  if (mlp_bias) layer += num_up * F + D;

  const std::int64_t positions = position == PositionKind::learned ? max_position_embeddings * D : 0;
  const std::int64_t head = tie_word_embeddings ? 0 : vocab_size * D;
  const std::int64_t mixtures = mixture.num_layers_of(num_hidden_layers),
                     instead = mixture.num_parameters(D, mixture.num_experts) - (num_up + 1) * D * F;
  return vocab_size * D + positions + num_hidden_layers * layer + mixtures * instead + norm_size + head;
}

std::int64_t ModelSpec::num_active_parameters() const {
  const std::int64_t unused = mixture.num_parameters(hidden_size, mixture.num_experts) -
                              mixture.num_parameters(hidden_size, mixture.num_experts_per_tok);
  return num_parameters() - mixture.num_layers_of(num_hidden_layers) * unused;
}

std::int64_t ModelSpec::narrowest_mlp() const {
  return has_experts() ? std::min(intermediate_size, mixture.narrowest()) : intermediate_size;
}

std::int64_t ModelSpec::end_of_kind_from(std::int64_t layer) const {
  if (layer_types.empty() && no_rope_layers.empty()) {
    const std::int64_t end = mixture.end_of_kind_from(layer, num_hidden_layers);
    return sliding_window > 0 && layer < max_window_layers ? std::min(max_window_layers, end) : end;
  }
  const LayerKind kind = kind_of(layer);
  std::int64_t end = layer + 1;
  while (end < num_hidden_layers && kind_of(end) == kind) ++end;
  return end;
}

std::vector<LayerKind> ModelSpec::layer_kinds() const {
  std::vector<LayerKind> all;
  for (std::int64_t layer = 0; layer < num_hidden_layers; layer = end_of_kind_from(layer))
    if (std::ranges::find(all, kind_of(layer)) == all.end()) all.push_back(kind_of(layer));
  return all;
}

std::vector<std::int64_t> ModelSpec::windows() const {
  std::vector<std::int64_t> all;
  for (const LayerKind& kind : layer_kinds())
    if (std::ranges::find(all, kind.window) == all.end()) all.push_back(kind.window);
  return all;
}

ModelSpec ModelSpec::with_layers_of(const LayerKind& kind) const {
  ModelSpec same = *this;
  same.layer_types.clear();
  same.sliding_window = kind.window;
  same.max_window_layers = 0;
  same.no_rope_layers.clear();
  if (kind.has_experts)
    same.mixture.put_in_all_layers();
  else
    same.mixture = {};
  if (!kind.has_rope) same.no_rope_layers.assign(static_cast<std::size_t>(num_hidden_layers), 0);
  return same;
}

void ModelSpec::set_layer_types(std::vector<LayerType> types) {
  layer_types.clear();
  max_window_layers = 0;
  const auto first = std::ranges::find(types, LayerType::sliding_attention);
  if (first == types.end())
    sliding_window = 0;
  else if (std::find(first, types.end(), LayerType::full_attention) == types.end())
    max_window_layers = first - types.begin();
  else
    layer_types = std::move(types);
}

void ModelSpec::set_num_layers(std::int64_t count) {
  const auto is_left_out = [&](std::int64_t layer) { return layer >= count && layer < num_hidden_layers; };
  std::erase_if(mixture.mlp_only_layers, is_left_out);
  num_hidden_layers = count;
  repeat_to(layer_types, count);
  if (!layer_types.empty()) set_layer_types(std::exchange(layer_types, {}));
  repeat_to(no_rope_layers, count);
  if (std::ranges::find(no_rope_layers, 0) == no_rope_layers.end()) no_rope_layers.clear();
}

void ModelSpec::set_head_dim(std::int64_t width) {
  head_dim = width;
  for (std::optional<RopeScaling>* scaling : {&rope_scaling, sliding_rope ? &sliding_rope->scaling : nullptr}) {
    if (scaling == nullptr || !*scaling) continue;
    repeat_to((*scaling)->short_factor, rotary_dim() / 2);
    repeat_to((*scaling)->long_factor, rotary_dim() / 2);
  }
}

double ModelSpec::attention_scale() const {
  if (attention_multiplier > 0) return attention_multiplier;
  const double usual =
      1.0 / std::sqrt(query_pre_attn_scalar > 0 ? query_pre_attn_scalar : static_cast<double>(head_dim));
  if (!has_latents() || !rope_scaling || rope_scaling->mscale_all_dim == 0 || rope_scaling->factor <= 1) return usual;
  const double mscale = 0.1 * rope_scaling->mscale_all_dim * std::log(rope_scaling->factor) + 1;
  return usual * mscale * mscale;
}

std::vector<RopeSpec> ModelSpec::ropes() const {
  std::vector<RopeSpec> all = {{rope_theta, rope_scaling}};
  if (sliding_rope) all.push_back(*sliding_rope);
  if (!has_growing_queries()) return all;
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().is_of_queries = true;
  }
  return all;
}

double model_flops_per_token(const ModelSpec& m, std::int64_t seq_len) {
  const std::int64_t looked_up = (m.tie_word_embeddings ? 0 : m.vocab_size) +
                                 (m.position == PositionKind::learned ? m.max_position_embeddings : 0);
  const std::int64_t N = m.num_active_parameters() - looked_up * m.hidden_size;
  return 6.0 * static_cast<double>(N) + attention_flops_per_token(m, seq_len);
}

double attention_flops_per_token(const ModelSpec& m, std::int64_t seq_len) {
  std::int64_t keys = 0;  // of one token in all layers
  for (std::int64_t layer = 0; layer < m.num_hidden_layers;) {
    const std::int64_t end = m.end_of_kind_from(layer), window = m.window_of(layer);
    keys += (end - layer) * (window == 0 ? seq_len : std::min(window, seq_len));
    layer = end;
  }
  return 6.0 * static_cast<double>(m.num_attention_heads * (m.head_dim + m.value_dim())) * static_cast<double>(keys);
}

}  // namespace echelon
