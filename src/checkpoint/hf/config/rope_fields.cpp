// rope_theta and rope_scaling of transformers 4, rope_parameters of transformers 5: a kind of RoPE and its constants.
#include "checkpoint/hf/config/family_fields.h"
#include "checkpoint/hf/config/model_config.h"

#include <algorithm>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view growth_of_queries = "llama_4_scaling_beta";
constexpr std::string_view old_positions = "original_max_position_embeddings";

// "type" is its older name; "su" and "longrope" are the same.
std::optional<RopeType> read_type(const ConfigFields& rope) {
  const std::string key = rope.has("type") && !rope.has("rope_type") ? "type" : "rope_type";
  const std::string type = rope.text(key, rope.has("factor") ? std::nullopt : std::optional<std::string>("default"));
  if (type == "default") return std::nullopt;
  if (type == "su") return RopeType::longrope;
  rope.require_one_of(key, type, {"default", "llama3", "linear", "dynamic", "yarn", "longrope"});
  return find_rope_type(type);
}

void read_yarn(const ConfigFields& rope, RopeScaling& s) {
  s.beta_fast = rope.number("beta_fast", s.beta_fast);
  s.beta_slow = rope.number("beta_slow", s.beta_slow);
  s.mscale = rope.number("mscale", 0);
  s.mscale_all_dim = rope.number("mscale_all_dim", 0);
  s.truncate = rope.boolean("truncate", true);
}

std::optional<RopeScaling> read_scaling(const ConfigFields& config, const ConfigFields& rope, const RopeFields& fields,
                                        const ModelSpec& model) {
  const auto type = read_type(rope);
  const double growth = fields.grows_queries ? rope.number(growth_of_queries, 0) : 0;
  if (!type && growth != 0) rope.refuse(growth_of_queries, "needs a kind of scaling (use rope_type \"yarn\")");
  if (!type) return std::nullopt;
  RopeScaling s;
  s.rope_type = *type;
  s.llama_4_scaling_beta = growth;
  const bool is_long = *type == RopeType::longrope;
  if (!is_long) s.factor = rope.number("factor");
  const std::int64_t known = config.integer(old_positions, max_rows, model.max_position_embeddings);
  if (*type == RopeType::yarn || is_long)
    s.original_max_position_embeddings = rope.integer(old_positions, max_rows, known);
  if (*type == RopeType::llama3) s.original_max_position_embeddings = rope.integer(old_positions, max_rows);
  const double ratio =
      static_cast<double>(model.max_position_embeddings) / static_cast<double>(s.original_max_position_embeddings);
  if (is_long) s.factor = rope.number("factor", std::max(1.0, ratio));
  if (*type == RopeType::llama3) {
    s.low_freq_factor = rope.number("low_freq_factor");
    s.high_freq_factor = rope.number("high_freq_factor");
  }
  if (*type == RopeType::yarn) read_yarn(rope, s);
  if (*type == RopeType::yarn || is_long) s.attention_factor = rope.number("attention_factor", 0);
  if (!is_long) return s;
  s.short_factor = rope.numbers("short_factor");
  s.long_factor = rope.numbers("long_factor");
  return s;
}

Json scaling_of(const RopeScaling& s) {
  Json json = {{"rope_type", name_of(s.rope_type)}};
  if (s.rope_type != RopeType::longrope) json["factor"] = s.factor;
  if (s.rope_type == RopeType::llama3)
    json.update({{"low_freq_factor", s.low_freq_factor}, {"high_freq_factor", s.high_freq_factor}});
  if (s.rope_type == RopeType::yarn) {
    json.update({{"beta_fast", s.beta_fast}, {"beta_slow", s.beta_slow}});
    if (s.mscale > 0) json["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0) json["mscale_all_dim"] = s.mscale_all_dim;
    if (!s.truncate) json["truncate"] = false;
  }
  if (s.rope_type == RopeType::longrope)
    json.update({{"short_factor", s.short_factor}, {"long_factor", s.long_factor}});
  if (s.rope_type != RopeType::linear && s.rope_type != RopeType::dynamic)
    json[old_positions] = s.original_max_position_embeddings;
  if (s.attention_factor > 0) json["attention_factor"] = s.attention_factor;
  if (s.llama_4_scaling_beta > 0) json[growth_of_queries] = s.llama_4_scaling_beta;
  return json;
}

Json parameters_of(const RopeSpec& rope) {
  Json json = {{"rope_theta", rope.rope_theta}, {"rope_type", "default"}};
  if (rope.scaling) json.update(scaling_of(*rope.scaling));
  return json;
}

// Phi-3 and OLMo 2 of transformers 4 take no other keys, and Granite and Gemma 3 no other name of the type; Phi-3 has
// the original length next to them.
Json older_scaling_of(const RopeScaling& s, const RopeFields& fields) {
  if (!fields.has_type_alone) return scaling_of(s);
  if (s.rope_type == RopeType::linear || s.rope_type == RopeType::dynamic)
    return {{"type", name_of(s.rope_type)}, {"factor", s.factor}};
  if (s.rope_type != RopeType::longrope || s.attention_factor > 0) return scaling_of(s);
  return {{"type", "longrope"}, {"short_factor", s.short_factor}, {"long_factor", s.long_factor}};
}

void read_no_rope_layers(const ConfigFields& config, std::int64_t absent_interval, ModelSpec& model) {
  std::vector<std::int64_t> layers;
  for (const double has_rope : config.numbers("no_rope_layers")) {
    if (has_rope != 0 && has_rope != 1) config.refuse("no_rope_layers", "is no list of 0 and 1");
    layers.push_back(has_rope == 1 ? 1 : 0);
  }
  const std::int64_t interval = config.integer("no_rope_layer_interval", max_rows, absent_interval);
  if (layers.empty())
    for (std::int64_t i = 1; i <= model.num_hidden_layers; ++i) layers.push_back(i % interval == 0 ? 0 : 1);
  if (std::ranges::find(layers, 0) != layers.end()) model.no_rope_layers = layers;
}

}  // namespace

void read_rope(const ConfigFields& config, const RopeFields& fields, ModelSpec& model) {
  const ConfigFields older = config.object("rope_scaling"), newer = config.object("rope_parameters");
  const ConfigFields& by_type = older.has("full_attention") ? older : newer;
  const bool is_nested = fields.differs_with_windows && by_type.has("full_attention");
  // transformers 5 takes rope_scaling first, too.
  const bool is_older = config.has("rope_scaling") && !older.has("full_attention");
  const ConfigFields rope = is_nested ? by_type.object("full_attention") : is_older ? older : newer;
  const double theta = config.number("rope_theta", config.number(fields.theta, fields.absent_theta));
  model.rope_theta = rope.number("rope_theta", theta);
  const bool is_absent = !config.has("rope_scaling") && !config.has("rope_parameters");
  model.rope_scaling = is_absent ? fields.absent_scaling : read_scaling(config, is_older ? older : rope, fields, model);
  const double partial =
      fields.partial.empty()
          ? 1.0
          : config.number(fields.partial, config.number("partial_rotary_factor", fields.absent_partial));
  model.partial_rotary_factor = rope.number("partial_rotary_factor", partial);
  for (const auto* holder : {&config, &rope})
    if (fields.partial.empty() && holder->number("partial_rotary_factor", 1.0) != 1.0)
      holder->refuse("partial_rotary_factor", "is not supported (use 1.0)");
  if (fields.no_rope_interval > 0) read_no_rope_layers(config, fields.no_rope_interval, model);
  if (!fields.differs_with_windows || model.sliding_window == 0) return;
  RopeSpec sliding = {.rope_theta = model.rope_theta, .scaling = {}};
  if (!fields.theta_of_windows.empty()) sliding.rope_theta = config.number(fields.theta_of_windows, 10000.0);
  if (is_nested) {
    const ConfigFields own = by_type.object("sliding_attention");
    sliding = {.rope_theta = own.number("rope_theta", sliding.rope_theta),
               .scaling = read_scaling(config, own, fields, model)};
  }
  if (sliding != RopeSpec{model.rope_theta, model.rope_scaling}) model.sliding_rope = sliding;
}

bool has_rope_of_version_4(const ModelSpec& model) {
  const RopeFields& fields = description_of(model.family).rope;
  if (!fields.differs_with_windows || model.sliding_window == 0) return true;
  const RopeSpec sliding = model.sliding_rope.value_or(RopeSpec{model.rope_theta, model.rope_scaling});
  return !sliding.scaling && (!fields.theta_of_windows.empty() || sliding.rope_theta == model.rope_theta);
}

void write_rope(const ModelSpec& model, const RopeFields& fields, Json& config) {
  const RopeSpec full = {.rope_theta = model.rope_theta, .scaling = model.rope_scaling};
  config[fields.theta] = model.rope_theta;
  config["rope_scaling"] = model.rope_scaling ? older_scaling_of(*model.rope_scaling, fields) : Json(nullptr);
  Json parameters = parameters_of(full);
  if (!fields.partial.empty())
    config[fields.partial] = parameters["partial_rotary_factor"] = model.partial_rotary_factor;
  if (model.rope_scaling && model.rope_scaling->rope_type == RopeType::longrope)
    config[old_positions] = model.rope_scaling->original_max_position_embeddings;
  if (fields.no_rope_interval > 0) {
    config["no_rope_layers"] = model.no_rope_layers;
    for (std::int64_t i = std::ssize(model.no_rope_layers); i < model.num_hidden_layers; ++i)
      config["no_rope_layers"].push_back(1);
  }
  if (fields.grows_queries) {  // transformers reads both always
    if (!parameters.contains(growth_of_queries)) parameters[growth_of_queries] = 0.0;
    if (!parameters.contains(old_positions)) parameters[old_positions] = model.max_position_embeddings;
    if (model.rope_scaling) config["rope_scaling"] = parameters;
  }
  if (fields.differs_with_windows) {
    const RopeSpec sliding = model.sliding_rope.value_or(full);
    if (!fields.theta_of_windows.empty()) config[fields.theta_of_windows] = sliding.rope_theta;
    parameters = {{"full_attention", parameters_of(full)}, {"sliding_attention", parameters_of(sliding)}};
  }
  config["rope_parameters"] = parameters;
}

}  // namespace echelon
