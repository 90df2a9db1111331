#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/adapter/adapter_fields.h"
#include "files/file.h"
#include "spec/families/family.h"
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

/// PEFT keeps a tie where a name ends with one of two, whatever the family calls its embedding.
WrittenJson written_modules_of(const LoraConfig& lora, const ModelSpec& model) {
  if (lora.modules_to_save.empty()) return nullptr;
  std::vector<std::string> names = lora.modules_to_save;
  const auto is_known = [](const std::string& name) {
    const std::string last = name.substr(name.rfind('.') + 1);
    return last == "embed_tokens" || last == "lm_head";
  };
  if (saves_tied_weight(lora, model) && std::ranges::none_of(names, is_known)) names.emplace_back("lm_head");
  return names;
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
                      {"modules_to_save", written_modules_of(lora, model)},
                      {"init_lora_weights", true}};
  const nlohmann::json kept = kept_adapter_fields(config.source);
  for (const auto& [field, value] : kept.items()) json[field] = value;
  if (saves_tied_weight(lora, model)) json["ensure_weight_tying"] = true;
  // Not "all-linear", which PEFT takes for all linear layers of whatever model it is given.
  json["target_modules"] = names_of(adapted_modules(lora, model), model);
  const auto& layers = description_of(model.family).weights.of_layer;
  json["fan_in_fan_out"] = std::ranges::any_of(layers, &WeightName::is_transposed);
  if (config.base_digest) json[base_digest_key] = to_text(*config.base_digest);
  if (config.steps > 0) json[steps_key] = config.steps;
  write_text(folder / adapter_config_name, json.dump(2, ' ', false, WrittenJson::error_handler_t::replace) + "\n");
}

}  // namespace echelon
