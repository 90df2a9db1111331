// config.json of tiny models of any family.
#pragma once

#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/model_reader.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <nlohmann/json.hpp>

#include <string>

namespace echelon::family_configs {

using nlohmann::json;

/// The sizes of a model, under Llama's keys.
inline json config_of(const std::string& model_type, const json& more) {
  json config = {{"model_type", model_type}, {"hidden_size", 64},        {"intermediate_size", 96},
                 {"num_hidden_layers", 6},   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"head_dim", 16},           {"vocab_size", 100},        {"max_position_embeddings", 128},
                 {"rope_theta", 10000.0}};
  if (!more.is_null()) config.update(more);
  return config;
}

inline ModelSpec read(const json& config) {
  const ScratchFolder scratch;
  put(scratch / "config.json", config.dump());
  return read_model_spec(scratch.path());
}

inline json written(const ModelSpec& model) {
  const ScratchFolder scratch;
  write_model_config(scratch.path(), model, {});
  return json::parse(get(scratch / "config.json"));
}

inline std::string refusal(const json& config) {
  return error_of([&] { (void)read(config); });
}

constexpr auto full = LayerType::full_attention, sliding = LayerType::sliding_attention;

}  // namespace echelon::family_configs
