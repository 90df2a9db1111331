// rope_theta and rope_scaling of transformers 4, rope_parameters of transformers 5: a kind of RoPE and its constants.
#include "checkpoint/hf/family_fields.h"

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

Json scaling_of(const ModelSpec& model) {
  if (!model.rope_scaling) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", model.rope_scaling->factor},
          {"low_freq_factor", model.rope_scaling->low_freq_factor},
          {"high_freq_factor", model.rope_scaling->high_freq_factor},
          {"original_max_position_embeddings", model.rope_scaling->original_max_position_embeddings}};
}

}  // namespace

void read_rope(const ConfigFields& config, ModelSpec& model) {
  const std::string key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const ConfigFields rope = config.object(key);
  model.rope_theta = rope.number("rope_theta", config.number("rope_theta", 10000.0));
  for (const auto* holder : {&config, &rope})
    if (holder->number("partial_rotary_factor", 1.0) != 1.0)
      holder->refuse("partial_rotary_factor", "is not supported (use 1.0)");
  if (!config.has(key)) return;
  // "type" is its older name.
  const std::string type_key = rope.has("type") && !rope.has("rope_type") ? "type" : "rope_type";
  const std::string type =
      rope.text(type_key, rope.has("factor") ? std::nullopt : std::optional<std::string>("default"));
  rope.require_one_of(type_key, type, {"default", "llama3"});
  if (type == "default") return;
  model.rope_scaling =
      RopeScaling{.factor = rope.number("factor"),
                  .low_freq_factor = rope.number("low_freq_factor"),
                  .high_freq_factor = rope.number("high_freq_factor"),
                  .original_max_position_embeddings = rope.integer("original_max_position_embeddings", max_rows)};
}

void write_rope(const ModelSpec& model, Json& config) {
  config["rope_theta"] = model.rope_theta;
  config["rope_scaling"] = scaling_of(model);
  Json parameters = {{"rope_theta", model.rope_theta}, {"rope_type", "default"}};
  if (model.rope_scaling) parameters.update(config["rope_scaling"]);
  config["rope_parameters"] = parameters;
}

}  // namespace echelon
