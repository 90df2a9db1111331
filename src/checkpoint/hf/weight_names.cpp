#include "checkpoint/hf/weight_names.h"

#include "spec/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

// Sizes: V vocabulary, P positions, D model width, F feed-forward width, Q and K rows of the query and of the key
// projection.
struct Widths {
  explicit Widths(const ModelSpec& m)
      : V(m.vocab_size),
        P(m.max_position_embeddings),
        D(m.hidden_size),
        F(m.intermediate_size),
        Q(m.num_attention_heads * m.head_dim),
        K(m.num_key_value_heads * m.head_dim) {}
  std::int64_t V, P, D, F, Q, K;
};

class ParameterList {
 public:
  explicit ParameterList(const ModelSpec& model) : model_(model), w_(model) {}

  std::vector<NamedShape> take() {
    add("model.embed_tokens.weight", {w_.V, w_.D});
    if (model_.position == PositionKind::learned) add("model.embed_positions.weight", {w_.P, w_.D});
    for (std::int64_t i = 0; i < model_.num_hidden_layers; ++i) add_layer(fmt::format("model.layers.{}.", i), i);
    add_norm("model.norm");
    if (!model_.tie_word_embeddings) add("lm_head.weight", {w_.V, w_.D});
    return std::move(parameters_);
  }

 private:
  void add(std::string name, Sizes sizes) { parameters_.push_back({std::move(name), sizes}); }

  void add_norm(const std::string& name) {
    add(name + ".weight", {w_.D});
    if (model_.norm == NormKind::layer_norm) add(name + ".bias", {w_.D});
  }

  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }

  void add_layer(const std::string& layer, std::int64_t index) {
    if (model_.norm_placement != NormPlacement::after) add_norm(layer + "input_layernorm");
    if (model_.has_latents())
      add_latents(layer + "self_attn.");
    else
      add_heads(layer + "self_attn.");
    add_norm(layer + "post_attention_layernorm");
    if (model_.norm_placement == NormPlacement::both) add_norm(layer + "pre_feedforward_layernorm");
    if (model_.mixture.is_in(index))
      add_experts(layer + "mlp.");
    else
      add_mlp(layer + "mlp.");
    if (model_.norm_placement != NormPlacement::before) add_norm(layer + "post_feedforward_layernorm");
  }

  void add_latents(const std::string& attention) {
    const std::int64_t Lq = model_.q_lora_rank, L = model_.kv_lora_rank, R = model_.qk_rope_head_dim,
                       H = model_.num_attention_heads, V = model_.v_head_dim;
    if (Lq == 0) {
      add(attention + "q_proj.weight", {w_.Q, w_.D});
    } else {
      add(attention + "q_a_proj.weight", {Lq, w_.D});
      add(attention + "q_a_layernorm.weight", {Lq});
      add(attention + "q_b_proj.weight", {w_.Q, Lq});
    }
    add(attention + "kv_a_proj.weight", {L, w_.D});
    add(attention + "k_rope_proj.weight", {R, w_.D});
    add(attention + "kv_a_layernorm.weight", {L});
    add(attention + "kv_b_proj.weight", {H * (model_.head_dim - R + V), L});
    add(attention + "o_proj.weight", {w_.D, H * V});
  }

  void add_heads(const std::string& attention) {
    add_linear(attention + "q_proj", w_.Q, w_.D, model_.qkv_bias);
    add_linear(attention + "k_proj", w_.K, w_.D, model_.qkv_bias);
    add_linear(attention + "v_proj", w_.K, w_.D, model_.qkv_bias);
    const bool is_whole = model_.qk_norm_of_projection;
    if (model_.qk_norm) add(attention + "q_norm.weight", {is_whole ? w_.Q : model_.head_dim});
    if (model_.qk_norm) add(attention + "k_norm.weight", {is_whole ? w_.K : model_.head_dim});
    add_linear(attention + "o_proj", w_.D, w_.Q, model_.o_bias);
  }

  void add_mlp(const std::string& mlp) {
    if (is_gated(model_.mlp)) add_linear(mlp + "gate_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(mlp + "up_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(mlp + "down_proj", w_.D, w_.F, model_.mlp_bias);
  }

  void add_experts(const std::string& mlp) {
    const MixtureSpec& m = model_.mixture;
    const std::int64_t E = m.num_experts, F = m.moe_intermediate_size, S = m.shared_expert_intermediate_size;
    add(mlp + "gate.weight", {E, w_.D});
    add(mlp + "experts.gate_proj.weight", {E, F, w_.D});
    add(mlp + "experts.up_proj.weight", {E, F, w_.D});
    add(mlp + "experts.down_proj.weight", {E, w_.D, F});
    if (S == 0) return;
    add(mlp + "shared_expert.gate_proj.weight", {S, w_.D});
    add(mlp + "shared_expert.up_proj.weight", {S, w_.D});
    add(mlp + "shared_expert.down_proj.weight", {w_.D, S});
    if (m.gates_shared_expert) add(mlp + "shared_expert_gate.weight", {1, w_.D});
  }

  const ModelSpec& model_;
  Widths w_;
  std::vector<NamedShape> parameters_;
};

/// The rows of a slot, and all rows of the tensor that holds it and its neighbours.
struct SlotRows {
  FusedRows rows;
  std::int64_t num_rows = 0;
};

/// Rotary columns are first in a parameter and last in the files, where those of a pair may be adjacent.
FusedRows rotary_rows(const ModelSpec& model, std::int64_t head_dim) {
  const std::int64_t R = model.qk_rope_head_dim, P = head_dim - R;
  FusedRows rows = {.first = 0, .block = head_dim, .stride = head_dim};
  if (model.rope_interleave)
    rows.runs = {{R / 2, P, 2}, {R / 2, P + 1, 2}};
  else
    rows.runs = {{R, P, 1}};
  if (P > 0) rows.runs.push_back({P, 0, 1});
  return rows;
}

SlotRows rows_of(Slot slot, const ModelSpec& model, std::int64_t own) {
  const Widths w(model);
  const std::int64_t C = model.head_dim;
  const std::int64_t qkv = w.Q + 2 * w.K;
  switch (slot) {
    case Slot::whole: return {{}, own};
    case Slot::query: return {{}, qkv};
    case Slot::key: return {{.first = w.Q}, qkv};
    case Slot::value: return {{.first = w.Q + w.K}, qkv};
    case Slot::gate: return {{}, 2 * w.F};
    case Slot::up: return {{.first = w.F}, 2 * w.F};
    case Slot::query_of_heads: return {{.first = 0, .block = C, .stride = 3 * C}, qkv};
    case Slot::key_of_heads: return {{.first = C, .block = C, .stride = 3 * C}, qkv};
    case Slot::rotary_query: return {rotary_rows(model, C), own};
    case Slot::latent: return {{}, model.kv_lora_rank + model.qk_rope_head_dim};
    case Slot::rotary_key: {
      FusedRows rows = rotary_rows(model, model.qk_rope_head_dim);
      rows.first = model.kv_lora_rank;
      return {rows, model.kv_lora_rank + model.qk_rope_head_dim};
    }
    case Slot::value_of_heads: return {{.first = 2 * C, .block = C, .stride = 3 * C}, qkv};
  }
  return {};
}

const WeightName* find_name(const std::vector<WeightName>& names, std::string_view parameter) {
  const auto found = std::ranges::find(names, parameter, &WeightName::parameter);
  return found == names.end() ? nullptr : &*found;
}

/// The name in the files, without ".weight" or ".bias", and how the tensor is stored.
struct Found {
  std::string tensor;
  Slot slot = Slot::whole;
  bool is_transposed = false;
};

Found find_tensor(const WeightNames& names, std::string_view stem) {
  constexpr std::string_view layer_prefix = "model.layers.";
  std::string prefix;
  const WeightName* name = nullptr;
  if (stem.starts_with(layer_prefix)) {
    stem.remove_prefix(layer_prefix.size());
    const auto dot = stem.find('.');
    prefix = fmt::format("{}{}.", names.layers, stem.substr(0, dot));
    stem.remove_prefix(dot + 1);
    name = find_name(names.of_layer, stem);
  } else {
    name = find_name(names.of_model, stem);
  }
  if (name == nullptr) return {fmt::format("{}{}", prefix, stem)};
  return {fmt::format("{}{}", prefix, name->tensor), name->slot, name->is_transposed};
}

/// Of a stack: a matrix of it.
Sizes sizes_of_one(const Sizes& sizes) { return sizes.num_dims() == 3 ? Sizes{sizes[1], sizes[2]} : sizes; }

FilePlace place_of(const ModelSpec& model, const NamedShape& parameter) {
  const auto suffix = std::string_view(parameter.name).substr(parameter.name.rfind('.'));  // ".weight", ".bias"
  const std::string_view stem(parameter.name.data(), parameter.name.size() - suffix.size());
  const Found found = find_tensor(description_of(model.family).weights, stem);
  Sizes sizes = sizes_of_one(parameter.sizes);
  const SlotRows slot = rows_of(found.slot, model, sizes[0]);
  sizes[0] = slot.num_rows;
  const bool transposed = found.is_transposed && sizes.num_dims() == 2;
  if (transposed) sizes = {sizes[1], sizes[0]};
  return {
      .tensor = fmt::format("{}{}", found.tensor, suffix), .sizes = sizes, .rows = slot.rows, .transposed = transposed};
}

}  // namespace

std::vector<NamedShape> global_parameters(const ModelSpec& model) { return ParameterList(model).take(); }

std::string router_bias_name(std::int64_t layer) {
  return fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", layer);
}

std::vector<NamedShape> router_biases(const ModelSpec& model) {
  std::vector<NamedShape> biases;
  for (std::int64_t layer = 0; model.mixture.has_bias && layer < model.num_hidden_layers; ++layer)
    if (model.mixture.is_in(layer)) biases.push_back({router_bias_name(layer), {model.mixture.num_experts}});
  return biases;
}

namespace {

std::vector<NamedShape> saved_tensors(const ModelSpec& model) {
  std::vector<NamedShape> all = global_parameters(model);
  for (NamedShape& bias : router_biases(model)) all.push_back(std::move(bias));
  return all;
}

}  // namespace

std::map<std::string, PlacedParameter, std::less<>> placed_parameters(const ModelSpec& model) {
  std::map<std::string, PlacedParameter, std::less<>> placed;
  for (const NamedShape& parameter : saved_tensors(model))
    placed[parameter.name] = {parameter.sizes, place_of(model, parameter)};
  if (model.tie_word_embeddings) placed["lm_head.weight"] = placed["model.embed_tokens.weight"];
  return placed;
}

std::vector<NamedShape> file_tensors(const ModelSpec& model) {
  std::vector<NamedShape> tensors;
  std::set<std::string> names;
  for (const NamedShape& parameter : saved_tensors(model)) {
    const PlacedParameter placed = {parameter.sizes, place_of(model, parameter)};
    for (const std::string& tensor : placed.tensors())
      if (names.insert(tensor).second) tensors.push_back({tensor, placed.place.sizes});
  }
  return tensors;
}

std::vector<std::string> PlacedParameter::tensors() const {
  if (sizes.num_dims() < 3) return {place.tensor};
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < sizes[0]; ++i) names.push_back(fmt::format(fmt::runtime(place.tensor), i));
  return names;
}

std::vector<PlacedPart> PlacedParameter::parts_of(const TensorSlice& slice) const {
  if (sizes.num_dims() < 3) return {{place.tensor, slice, 0}};
  const Sizes one = sizes_of_one(sizes);
  const bool is_cut = slice.dim() > 0;
  const TensorSlice matrix = is_cut ? TensorSlice(one, slice.dim() - 1, slice.entries(slice.dim())) : TensorSlice(one);
  const std::int64_t count = matrix.num_elements(), first = slice.first(), end = first + slice.num_elements();
  std::vector<PlacedPart> parts;
  const std::int64_t first_matrix = slice.entries(0).first, most = sizes[0] - first_matrix;  // the others are padding
  for (std::int64_t i = first / count; i < most && i * count < end; ++i) {
    const std::int64_t from = std::max(first, i * count), to = std::min(end, (i + 1) * count);
    parts.push_back({.tensor = fmt::format(fmt::runtime(place.tensor), first_matrix + i),
                     .slice = matrix.elements({from - i * count, to - from}),
                     .first = from - first});
  }
  return parts;
}

}  // namespace echelon
