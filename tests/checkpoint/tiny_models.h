// Tiny specs of every family, weights as a function of their name and index, and naive slicing.
#pragma once

#include "checkpoint/hf/weight_names.h"
#include "nn/param.h"
#include "spec/families/family.h"
#include "spec/model_spec.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace echelon {

inline ModelSpec tiny_model(Family family, bool tied) {
  ModelSpec model = family_defaults(family);
  model.hidden_size = 12;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 3;
  model.num_key_value_heads = family == Family::gpt2 ? 3 : 1;
  model.head_dim = family == Family::qwen3 || family == Family::qwen3_moe || family == Family::dots1 ? 6 : 4;
  model.intermediate_size = 10;
  model.vocab_size = 17;
  model.max_position_embeddings = 8;
  model.tie_word_embeddings = tied;
  if (!description_of(family).mixture) return model;
  model.mixture.num_experts = 5;
  model.mixture.moe_intermediate_size = description_of(family).mixture->shares_width() ? model.intermediate_size : 7;
  if (description_of(family).mixture->has_dense_layers) model.mixture.mlp_only_layers = {tied ? 0 : 1};
  if (model.mixture.gates_shared_expert) model.mixture.shared_expert_intermediate_size = 9;
  if (!description_of(family).mixture->is_of_deepseek) return model;
  model.mixture.num_experts = 6;
  model.mixture.num_experts_per_tok = 3;
  model.mixture.n_group = 3;
  model.mixture.topk_group = 2;
  model.mixture.first_k_dense_replace = 1;
  model.mixture.routed_scaling_factor = 2.5;
  model.mixture.shared_expert_intermediate_size = 14;
  if (!description_of(family).has_latents) return model;
  model.num_key_value_heads = model.num_attention_heads;
  model.head_dim = 6;
  model.kv_lora_rank = 7;
  model.q_lora_rank = tied ? 5 : 0;
  model.qk_rope_head_dim = 4;
  model.v_head_dim = 3;
  return model;
}

/// A multiple of 1/64 below 2 in size, so that every format but 16-bit integers holds it exactly.
inline double weight(const std::string& name, std::int64_t index) {
  const auto mixed = (std::hash<std::string>{}(name) + static_cast<std::size_t>(index) * 7919U) * 0x9e3779b97f4a7c15ULL;
  return (static_cast<double>(mixed >> 56) - 128.0) / 64.0;
}

inline std::vector<double> whole(const NamedShape& parameter) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < parameter.sizes.num_elements(); ++i) values.push_back(weight(parameter.name, i));
  return values;
}

/// Of all layers with experts.
inline std::vector<float> some_router_bias(const ModelSpec& model) {
  std::vector<float> bias;
  for (const NamedShape& of_layer : router_biases(model))
    for (const double value : whole(of_layer)) bias.push_back(static_cast<float>(value) + 1.0F / 8192);
  return bias;
}

/// The slice of the parameter on rank `rank` of `tp`: equal slices along `dim` (whole if it has no such dim); the last
/// one may reach past the end.
inline Param sliced(const NamedShape& parameter, int dim, int rank, int tp) {
  Param param;
  param.name = parameter.name;
  param.slice = TensorSlice(parameter.sizes);
  if (dim >= parameter.sizes.num_dims()) return param;
  const std::int64_t count = (parameter.sizes[dim] + tp - 1) / tp;
  param.slice = TensorSlice(parameter.sizes, dim, {rank * count, count});
  return param;
}

/// The values of the slice, element by element; zero past the end.
inline std::vector<double> slice_values(const Param& param, const std::vector<double>& values) {
  struct Dim {
    std::int64_t first = 0, count = 1, whole = 1;
  };
  std::array<Dim, 3> dims{};  // the last ones are the parameter's
  const int num_dims = param.global_sizes().num_dims();
  for (int dim = 0; dim < num_dims; ++dim)
    dims[static_cast<std::size_t>(3 - num_dims + dim)] = {param.slice.entries(dim).first, param.local_sizes()[dim],
                                                          param.global_sizes()[dim]};
  const auto& [e, i, j] = dims;
  std::vector<double> slice;
  for (std::int64_t at_e = e.first; at_e < e.first + e.count; ++at_e)
    for (std::int64_t at_i = i.first; at_i < i.first + i.count; ++at_i)
      for (std::int64_t at_j = j.first; at_j < j.first + j.count; ++at_j) {
        const bool exists = at_e < e.whole && at_i < i.whole && at_j < j.whole;
        slice.push_back(exists ? values[static_cast<std::size_t>((at_e * i.whole + at_i) * j.whole + at_j)] : 0.0);
      }
  return slice;
}

}  // namespace echelon
