#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/adapter/adapter_fields.h"
#include "files/file.h"
#include "spec/families/family.h"
#include "spec/lora/lora_parameters.h"
#include "spec/lora/saved_modules.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using WrittenJson = nlohmann::ordered_json;

WrittenJson whole_if_possible(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

/// "3" of "model.layers.3.input_layernorm.weight".
std::string_view index_of_layer(std::string_view parameter) {
  parameter.remove_suffix(layer_of(parameter).size() + 1);
  return parameter.substr(parameter.rfind('.') + 1);
}

/// Of every layer, as the wrapper's modules are called: shorter names may be those of modules for images too.
std::vector<std::string> whole_names_of_modules(const AdapterConfig& config, const ModelSpec& model) {
  std::vector<std::string> names;
  for (const NamedShape& parameter : whole_parameters(model, config.lora)) {
    std::string module = module_of_parameter(model, parameter.name);
    const std::size_t layer = module.find('*');
    if (layer != std::string::npos) module.replace(layer, 1, index_of_layer(parameter.name));
    module = config.names.in_file(module);
    if (std::ranges::find(names, module) == names.end()) names.push_back(std::move(module));
  }
  return names;
}

/// PEFT keeps a tie where a name ends with one of two, whatever the family calls its embedding.
WrittenJson written_modules_of(const AdapterConfig& config, const ModelSpec& model) {
  const LoraConfig& lora = config.lora;
  if (lora.modules_to_save.empty()) return nullptr;
  std::vector<std::string> names =
      config.names.are_wrapped() ? whole_names_of_modules(config, model) : lora.modules_to_save;
  const auto is_known = [](const std::string& name) {
    const std::string last = name.substr(name.rfind('.') + 1);
    return last == "embed_tokens" || last == "lm_head";
  };
  if (saves_tied_weight(lora, model) && std::ranges::none_of(names, is_known)) names.emplace_back("lm_head");
  return names;
}

/// Names, not "all-linear", which PEFT takes for all linear layers of whatever model it is given. In a wrapper names
/// would be those of modules for images too, which its pattern leaves out: that matches whole names.
WrittenJson written_targets_of(const AdapterConfig& config, const ModelSpec& model) {
  const std::vector<std::string_view> modules = adapted_modules(config.lora, model);
  if (!config.names.are_wrapped()) return names_of(modules, model);
  std::string pattern;
  const auto append = [&](std::string_view text) {
    for (const char c : text) pattern += c == '.' ? "\\." : std::string(1, c);
  };
  append(config.names.in_file(description_of(model.family).weights.layers));
  pattern += "\\d+\\.(";
  for (const std::string_view module : modules) {
    if (module != modules.front()) pattern += '|';
    append(module);
  }
  return pattern + ")";
}

}  // namespace

void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config, const ModelSpec& model) {
  const LoraConfig& lora = config.lora;
  WrittenJson json = {{"peft_type", "LORA"},
                      {"task_type", "CAUSAL_LM"},
                      {"base_model_name_or_path", config.base},
                      {"inference_mode", true},
                      {"r", lora.rank},
                      {"lora_alpha", whole_if_possible(lora.alpha)},
                      {"lora_dropout", 0.0},
                      {"use_rslora", lora.use_rslora},
                      {"bias", "none"},
                      {"modules_to_save", written_modules_of(config, model)},
                      {"init_lora_weights", true}};
  const nlohmann::json kept = kept_adapter_fields(config.source);
  for (const auto& [field, value] : kept.items()) json[field] = value;
  if (saves_tied_weight(lora, model)) json["ensure_weight_tying"] = true;
  json["target_modules"] = written_targets_of(config, model);
  const auto& layers = description_of(model.family).weights.of_layer;
  json["fan_in_fan_out"] = std::ranges::any_of(layers, &WeightName::is_transposed);
  if (config.base_digest) json[base_digest_key] = to_text(*config.base_digest);
  if (config.steps > 0) json[steps_key] = config.steps;
  write_text(folder / adapter_config_name, json.dump(2, ' ', false, WrittenJson::error_handler_t::replace) + "\n");
}

}  // namespace echelon
