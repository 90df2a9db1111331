// Tiny specs of every family, weights as a function of their name and index, and naive slicing.
#pragma once

#include "checkpoint/hf/weight_names.h"
#include "nn/param.h"
#include "spec/model_spec.h"

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
  model.head_dim = family == Family::qwen3 ? 6 : 4;
  model.intermediate_size = 10;
  model.vocab_size = 17;
  model.max_position_embeddings = 8;
  model.tie_word_embeddings = tied;
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
  const Sizes global = param.global_sizes(), local = param.local_sizes();
  const bool is_matrix = global.num_dims() == 2;
  const std::int64_t rows = is_matrix ? local[0] : 1, cols = local[-1];
  std::vector<double> slice;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const std::int64_t global_i = i + (is_matrix ? param.slice.entries(0).first : 0);
      const std::int64_t global_j = j + param.slice.entries(is_matrix ? 1 : 0).first;
      const bool exists = global_i < (is_matrix ? global[0] : 1) && global_j < global[-1];
      slice.push_back(exists ? values[static_cast<std::size_t>(global_i * global[-1] + global_j)] : 0.0);
    }
  return slice;
}

}  // namespace echelon
