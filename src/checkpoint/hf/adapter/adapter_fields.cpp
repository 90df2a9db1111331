#include "checkpoint/hf/adapter/adapter_fields.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/shown_json.h"
#include "base/text/printable.h"
#include "checkpoint/hf/adapter/adapter_config.h"
#include "files/file.h"
#include "files/folder_links.h"
#include "spec/lora/linear_layers.h"

#include <algorithm>
#include <span>
#include <string>

namespace echelon {
namespace {

using FieldsJson = nlohmann::json;

/// Those that are read, and written from what was read.
constexpr std::string_view own_fields[] = {"peft_type",
                                           "r",
                                           "lora_alpha",
                                           "use_rslora",
                                           "bias",
                                           "target_modules",
                                           "echelon_steps",
                                           "modules_to_save",
                                           "fan_in_fan_out",
                                           "base_model_name_or_path",
                                           "echelon_base_digest"};
/// Those that change nothing of what trained adapters compute: labels, how values were drawn before training
/// (init_lora_weights), and settings of methods that other fields turn on. Whatever fan_in_fan_out is, PEFT takes the
/// layer's own value.
constexpr std::string_view neutral_fields[] = {
    "task_type",      "init_lora_weights",   "lora_dropout",    "auto_mapping",     "revision",
    "inference_mode", "megatron_core",       "peft_version",    "loftq_config",     "eva_config",
    "corda_config",   "ensure_weight_tying", "exclude_modules", "qalora_group_size"};

bool is_one_of(std::span<const std::string_view> fields, std::string_view field) {
  return std::ranges::find(fields, field) != fields.end();
}

/// What any other field may be: it changes the computation, or is of a later PEFT. Settings may be an object.
bool is_nothing(const FieldsJson& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  if (value.is_object()) return std::all_of(value.begin(), value.end(), is_nothing);
  return value.is_null() || value == false || (value.is_array() && value.empty());
}

bool changes_nothing(std::string_view field, const FieldsJson& value) {
  return is_one_of(neutral_fields, field) || is_nothing(value);
}

std::string path_of_config(const std::filesystem::path& folder) { return (folder / adapter_config_name).string(); }

/// A list may name modules that have no adapters anyhow.
void require_no_exclusion(const FieldsJson& excluded, const ModelSpec& model, const std::filesystem::path& folder) {
  if (is_nothing(excluded)) return;
  const auto is_kept = [&](const FieldsJson& name) {
    if (!name.is_string()) return false;
    const std::string at_dot = "." + name.get<std::string>();
    return std::ranges::none_of(linear_modules(model), [&](std::string_view module) {
      const std::string own = fmt::format(".{}", module);
      return own.ends_with(at_dot) || at_dot.ends_with(own);
    });
  };
  require(excluded.is_array() && std::all_of(excluded.begin(), excluded.end(), is_kept),
          "{}: exclude_modules = {} is not supported for linear layers of blocks (only null, with target_modules)",
          path_of_config(folder), shown_json(excluded));
}

}  // namespace

FieldsJson read_adapter_json(const std::filesystem::path& folder) {
  FieldsJson json = parse_json_object(read_text_in_folder(folder, adapter_config_name), path_of_config(folder));
  require(json.contains("peft_type") && json["peft_type"] == "LORA", "{}: peft_type is {}; only LORA is supported",
          path_of_config(folder), json.contains("peft_type") ? shown_json(json["peft_type"]) : "absent");
  return json;
}

void require_supported_fields(const FieldsJson& config, const ModelSpec& model, const std::filesystem::path& folder) {
  for (const auto& [field, value] : config.items())
    require(is_one_of(own_fields, field) || changes_nothing(field, value), "{}: {} = {} is not supported (only null)",
            path_of_config(folder), printable(field, 200), shown_json(value));
  const FieldsJson is_transposed = config.value("fan_in_fan_out", FieldsJson());
  require(is_transposed.is_boolean() || is_transposed.is_null(), "{}: fan_in_fan_out = {} is not true or false",
          path_of_config(folder), shown_json(is_transposed));
  require(!config.contains("bias") || config["bias"] == "none", "{}: bias = {} is not supported (only \"none\")",
          path_of_config(folder), shown_json(config.value("bias", FieldsJson())));
  const FieldsJson init = config.value("init_lora_weights", FieldsJson(true));
  require(!init.is_string() || init == "gaussian" || init == "orthogonal" || init == "eva",
          "{}: init_lora_weights = {} changes the base's weights, which is not supported (only true)",
          path_of_config(folder), shown_json(init));
  require_no_exclusion(config.value("exclude_modules", FieldsJson()), model, folder);
}

FieldsJson kept_adapter_fields(const std::filesystem::path& folder) {
  FieldsJson kept = FieldsJson::object();
  if (folder.empty() || !is_adapter_folder(folder)) return kept;
  try {
    const FieldsJson all = read_adapter_json(folder);
    for (const auto& [field, value] : all.items())
      if (!is_one_of(own_fields, field) && changes_nothing(field, value)) kept[field] = value;
  } catch (const Error&) {
    return FieldsJson::object();
  }
  return kept;
}

}  // namespace echelon
