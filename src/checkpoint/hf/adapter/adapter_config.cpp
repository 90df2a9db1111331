#include "checkpoint/hf/adapter/adapter_config.h"

#include "base/error.h"
#include "base/shown_json.h"
#include "base/text/printable.h"
#include "checkpoint/hf/adapter/adapter_fields.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/safetensors/safetensors.h"
#include "files/file.h"
#include "files/folder_links.h"
#include "spec/families/family.h"
#include "spec/lora/linear_layers.h"
#include "spec/lora/saved_modules.h"

#include <algorithm>
#include <map>
#include <set>

namespace echelon {
namespace {

using AdapterJson = nlohmann::json;

std::string config_path(const std::filesystem::path& folder) { return (folder / adapter_config_name).string(); }

double number_of(const AdapterJson& json, const char* key, double absent, const std::filesystem::path& folder) {
  if (!json.contains(key)) return absent;
  require(json[key].is_number(), "{}: {} = {} is not a number", config_path(folder), key, shown_json(json[key]));
  return json[key].get<double>();
}

/// Of a list, or of null.
std::vector<std::string> names_in(const AdapterJson& list, std::string_view key, const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const AdapterJson& name : list.is_array() ? list : AdapterJson::array()) {
    require(name.is_string(), "{}: {} has {}, which is not a name", config_path(folder), key, shown_json(name));
    names.push_back(name.get<std::string>());
  }
  return names;
}

/// Of the tensors of the folder.
std::vector<std::string> modules_with_adapters(const std::filesystem::path& folder) {
  constexpr std::string_view suffix = ".lora_A.weight";
  std::vector<std::string> modules;
  for (const auto& [name, tensor] : read_safetensors_header(path_in_folder(folder, adapter_weights_name)))
    if (name.starts_with(peft_prefix) && name.ends_with(suffix))
      modules.push_back(name.substr(peft_prefix.size(), name.size() - peft_prefix.size() - suffix.size()));
  return modules;
}

std::vector<std::string> names_of_targets(const AdapterJson& json, const std::filesystem::path& folder) {
  const AdapterJson targets = json.value("target_modules", AdapterJson());
  require(targets.is_null() || targets.is_string() || targets.is_array(),
          "{}: target_modules = {} is neither a name nor a list of names (use \"all-linear\")", config_path(folder),
          shown_json(targets));
  // PEFT takes text for a regular expression.
  if (targets.is_string() && targets.get_ref<const std::string&>().find_first_of("*+?()[]\\|") != std::string::npos)
    return modules_with_adapters(folder);
  if (targets.is_string()) return {targets.get<std::string>()};
  return names_in(targets, "target_modules", folder);
}

std::vector<std::string> modules_to_save_of(const AdapterJson& json, const std::filesystem::path& folder) {
  const AdapterJson modules = json.value("modules_to_save", AdapterJson());
  require(modules.is_null() || modules.is_array(), "{}: modules_to_save = {} is not a list of names (use null)",
          config_path(folder), shown_json(modules));
  return names_in(modules, "modules_to_save", folder);
}

/// PEFT trains the copies of a tied weight apart unless it is told otherwise.
void require_tied(const AdapterJson& json, const LoraConfig& lora, const ModelSpec& model,
                  const std::filesystem::path& folder) {
  const AdapterJson ties = json.value("ensure_weight_tying", AdapterJson());
  require(!saves_tied_weight(lora, model) || ties == true,
          "{}: ensure_weight_tying = {} makes two weights of the embedding and the head, which the model ties (only "
          "true, with modules_to_save = {})",
          config_path(folder), shown_json(ties), shown_json(json.value("modules_to_save", AdapterJson())));
}

/// PEFT may name the modules of every layer, "model.layers.3.self_attn.q_proj", and of a wrapper's,
/// "language_model.norm".
std::vector<std::string> without_layers(const std::vector<std::string>& names, std::string_view key,
                                        const ModelSpec& model, const std::filesystem::path& folder) {
  const std::string_view layers = description_of(model.family).weights.layers;
  std::map<std::string, std::set<std::string>> layers_of;
  std::vector<std::string> targets;
  for (const std::string& given : names) {
    const std::string name = unwrapped(given);
    const std::size_t dot = name.find('.', layers.size());
    if (!name.starts_with(layers) || dot == std::string::npos) {
      targets.push_back(name);
      continue;
    }
    layers_of[name.substr(dot + 1)].insert(name.substr(layers.size(), dot - layers.size()));
  }
  for (const auto& [module, found] : layers_of) {
    for (std::int64_t i = 0; i < model.num_hidden_layers; ++i)
      require(found.contains(std::to_string(i)) || !has_module(model, i, module),
              "{}: {} has {} of some layers, but not of layer {}; it is trained in all layers or none",
              config_path(folder), key, printable(module, 200), i);
    targets.push_back(module);
  }
  return targets;
}

void read_own_fields(const AdapterJson& json, const std::filesystem::path& folder, AdapterConfig& config) {
  if (json.contains(base_digest_key)) {
    if (json[base_digest_key].is_string()) config.base_digest = parse_digest(json[base_digest_key].get<std::string>());
    require(config.base_digest.has_value(), "{}: {} = {} is not a digest (leave it out)", config_path(folder),
            base_digest_key, shown_json(json[base_digest_key]));
  }
  const AdapterJson steps = json.value(steps_key, AdapterJson(0U));
  require(steps.is_number_unsigned() && steps.get<std::uint64_t>() <= std::uint64_t{1} << 53,
          "{}: {} = {} is not a number of steps", config_path(folder), steps_key, shown_json(steps));
  config.steps = steps.get<std::int64_t>();
}

}  // namespace

bool is_adapter_folder(const std::filesystem::path& folder) {
  return is_folder(folder) && has_target(folder / adapter_config_name);
}

AdapterConfig read_adapter_config(const std::filesystem::path& folder, const ModelSpec& model) {
  const AdapterJson json = read_adapter_json(folder);
  require_supported_fields(json, model, folder);
  AdapterConfig config;
  const AdapterJson rank = json.value("r", AdapterJson());
  require(rank.is_number_integer() && rank > 0 && rank <= (1 << 16), "{}: r = {} is not a rank, such as 8",
          config_path(folder), shown_json(rank));
  config.lora.rank = rank.get<std::int64_t>();
  config.lora.alpha = number_of(json, "lora_alpha", 8, folder);
  const AdapterJson is_rank_stable = json.value("use_rslora", AdapterJson(false));
  require(is_rank_stable.is_boolean() || is_rank_stable.is_null(), "{}: use_rslora = {} is not true or false",
          config_path(folder), shown_json(is_rank_stable));
  config.lora.use_rslora = is_rank_stable == true;
  config.lora.target_modules = without_layers(names_of_targets(json, folder), "target_modules", model, folder);
  config.lora.modules_to_save = without_layers(modules_to_save_of(json, folder), "modules_to_save", model, folder);
  if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string())
    config.base = json["base_model_name_or_path"].get<std::string>();
  read_own_fields(json, folder, config);
  try {
    validate(config.lora, model);
    config.lora.target_modules = targets_of(adapted_modules(config.lora, model), model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", config_path(folder), error.what()));
  }
  require_tied(json, config.lora, model, folder);
  return config;
}

std::string read_adapter_base(const std::filesystem::path& folder) {
  const AdapterJson base = read_adapter_json(folder).value("base_model_name_or_path", AdapterJson());
  require(base.is_string() && is_folder(base.get<std::string>()),
          "{}: base_model_name_or_path = {} is not a folder; use echelon convert --merge with the folder of the base",
          config_path(folder), shown_json(base));
  return base.get<std::string>();
}

}  // namespace echelon
