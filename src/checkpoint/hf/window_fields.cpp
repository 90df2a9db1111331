// Which layers of a model have a sliding window.
#include "checkpoint/hf/family_fields.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t default_window = 4096;  // of transformers, for all families that have one

void read_window_of_all(const ConfigFields& config, ModelSpec& model) {
  if (!config.is_null("sliding_window"))
    model.sliding_window = config.integer("sliding_window", max_rows, default_window);
}

// Layers from max_window_layers on use a sliding window, if any; layer_types repeats which ones.
void read_windows_from_a_layer(const ConfigFields& config, ModelSpec& model) {
  constexpr std::int64_t default_max_window_layers = 28;
  const auto layer_types = config.texts("layer_types");
  const bool has_window = config.boolean("use_sliding_window", false) && !config.is_null("sliding_window");
  std::int64_t first = has_window ? config.integer("max_window_layers", max_rows, default_max_window_layers, 0)
                                  : model.num_hidden_layers;
  if (!layer_types.empty()) {
    first = std::find(layer_types.begin(), layer_types.end(), "sliding_attention") - layer_types.begin();
    for (const std::string& type : layer_types)
      config.require_one_of("layer_types", type, {"full_attention", "sliding_attention"});
    const bool is_split_once = std::all_of(layer_types.begin() + first, layer_types.end(),
                                           [](const std::string& type) { return type == "sliding_attention"; });
    if (std::ssize(layer_types) != model.num_hidden_layers || !is_split_once)
      config.refuse("layer_types", "is no list of all layers with full_attention before sliding_attention");
    if (!has_window && first < model.num_hidden_layers)
      config.refuse("layer_types", "has sliding_attention, but the model has no sliding_window");
  }
  if (first >= model.num_hidden_layers) return;
  model.sliding_window = config.integer("sliding_window", max_rows, default_window);
  model.max_window_layers = first;
}

}  // namespace

void read_windows(const ConfigFields& config, WindowFields fields, ModelSpec& model) {
  switch (fields) {
    case WindowFields::everywhere: return read_window_of_all(config, model);
    case WindowFields::from_a_layer: return read_windows_from_a_layer(config, model);
    case WindowFields::none:
      for (const std::string& type : config.texts("layer_types"))
        config.require_one_of("layer_types", type, {"full_attention"});
      return;
  }
}

void write_windows(const ModelSpec& model, WindowFields fields, nlohmann::ordered_json& config) {
  if (fields == WindowFields::none) return;
  const bool has_window = model.sliding_window > 0;
  if (has_window || fields == WindowFields::everywhere || !config.contains("sliding_window"))
    config["sliding_window"] = has_window ? nlohmann::ordered_json(model.sliding_window) : nullptr;
  if (fields != WindowFields::from_a_layer) return;
  config["use_sliding_window"] = has_window;
  if (has_window) config["max_window_layers"] = model.max_window_layers;
}

}  // namespace echelon
