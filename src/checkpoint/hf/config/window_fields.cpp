// Which layers of a model have a sliding window.
#include "checkpoint/hf/config/family_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

std::int64_t read_window(const ConfigFields& config, std::int64_t absent) {
  if (config.is_null("sliding_window")) return 0;
  return config.has("sliding_window") ? config.integer("sliding_window", max_rows) : absent;
}

std::vector<LayerType> read_layer_types(const ConfigFields& config, const ModelSpec& model) {
  std::vector<LayerType> types;
  for (const std::string& type : config.texts("layer_types")) {
    config.require_one_of("layer_types", type, {"full_attention", "sliding_attention"});
    types.push_back(type == "full_attention" ? LayerType::full_attention : LayerType::sliding_attention);
  }
  if (!types.empty() && std::ssize(types) != model.num_hidden_layers)
    config.refuse("layer_types", fmt::format("is no list of all {} layers", model.num_hidden_layers));
  return types;
}

void set_layer_types(const ConfigFields& config, std::vector<LayerType> types, std::int64_t window, ModelSpec& model) {
  const bool slides = std::ranges::find(types, LayerType::sliding_attention) != types.end();
  if (slides && window == 0) config.refuse("layer_types", "has sliding_attention, but the model has no sliding_window");
  model.sliding_window = window;
  model.set_layer_types(std::move(types));
}

// Layers from max_window_layers on use a sliding window, if any; layer_types replaces it.
void read_windows_from_a_layer(const ConfigFields& config, std::int64_t absent, ModelSpec& model) {
  constexpr std::int64_t default_max_window_layers = 28;
  const std::int64_t window = config.boolean("use_sliding_window", false) ? read_window(config, absent) : 0;
  const std::vector<LayerType> types = read_layer_types(config, model);
  if (!types.empty()) return set_layer_types(config, types, window, model);
  if (window == 0) return;
  const std::int64_t first = config.integer("max_window_layers", max_rows, default_max_window_layers, 0);
  if (first >= model.num_hidden_layers) return;
  model.sliding_window = window;
  model.max_window_layers = first;
}

void read_windows_of_layers(const ConfigFields& config, const FamilyDescription& family, ModelSpec& model) {
  std::vector<LayerType> types = read_layer_types(config, model);
  const std::int64_t pattern = config.integer("sliding_window_pattern", max_rows, family.absent_window_pattern);
  for (std::int64_t i = std::ssize(types); i < model.num_hidden_layers; ++i)
    types.push_back((i + 1) % pattern == 0 ? LayerType::full_attention : LayerType::sliding_attention);
  set_layer_types(config, std::move(types), read_window(config, family.absent_window), model);
}

nlohmann::ordered_json layer_types_of(const ModelSpec& model) {
  auto types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer)
    types.push_back(model.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

}  // namespace

void read_windows(const ConfigFields& config, const FamilyDescription& family, ModelSpec& model) {
  switch (family.windows) {
    case WindowFields::everywhere: model.sliding_window = read_window(config, family.absent_window); return;
    case WindowFields::from_a_layer: return read_windows_from_a_layer(config, family.absent_window, model);
    case WindowFields::of_layers: return read_windows_of_layers(config, family, model);
    case WindowFields::none:
      for (const std::string& type : config.texts("layer_types"))
        config.require_one_of("layer_types", type, {"full_attention"});
      if (config.has("sliding_window") && config.has("max_window_layers") && !config.has("layer_types") &&
          config.integer("max_window_layers", max_rows, 0, 0) < model.num_hidden_layers)
        config.refuse("max_window_layers", "is below num_hidden_layers: layers with a window are not supported here");
      return;
  }
}

void write_windows(const ModelSpec& model, WindowFields fields, nlohmann::ordered_json& config) {
  if (fields == WindowFields::none) return;
  const bool has_window = model.sliding_window > 0;
  if (has_window || fields == WindowFields::everywhere || !config.contains("sliding_window"))
    config["sliding_window"] = has_window ? nlohmann::ordered_json(model.sliding_window) : nullptr;
  if (fields == WindowFields::of_layers) config["layer_types"] = layer_types_of(model);
  if (fields != WindowFields::from_a_layer) return;
  config["use_sliding_window"] = has_window;
  if (has_window) config["max_window_layers"] = model.max_window_layers;
  if (!model.layer_types.empty()) config["layer_types"] = layer_types_of(model);
}

}  // namespace echelon
