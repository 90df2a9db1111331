#include "checkpoint/hf/weight_names.h"

#include "spec/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

// Q and K: rows of the query and of the key projection; F: feed-forward width.
struct ProjectionRows {
  explicit ProjectionRows(const ModelSpec& m)
      : F(m.intermediate_size), Q(m.num_attention_heads * m.head_dim), K(m.num_key_value_heads * m.head_dim) {}
  std::int64_t F, Q, K;
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
  const ProjectionRows w(model);
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
