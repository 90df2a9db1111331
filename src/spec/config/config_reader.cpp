#include "spec/config/config_reader.h"

#include "base/error.h"
#include "base/text/utf8.h"
#include "spec/config/config_model.h"
#include "spec/config/config_value.h"
#include "spec/config/key_words.h"
#include "spec/config/toml_file.h"

#include <algorithm>

namespace echelon {
namespace {

const ConfigKey& known_key(std::string_view name, const std::string& origin) {
  const ConfigKey* key = find_config_key(name);
  require(key != nullptr, "{}: there is no key {}{}", origin, name, key != nullptr ? "" : hint_for_key(name));
  require(is_there(*key), "{}: {} ({}) is not supported yet; omit it", origin, name, key->doc);
  return *key;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "--training.seq-len=64", "--training.seq-len 64" (the value being the next argument) or
// "--parallelism.sequence-parallel".
std::vector<Setting> read_arguments(const std::vector<std::string>& arguments) {
  const std::string origin = "command line";
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    require(argument.starts_with("--") && argument.size() > 2,
            "{}: '{}' is not an option; options of a run look like --training.steps=100", origin, argument);
    const std::size_t equals = argument.find('=');
    const std::string name = with_underscores(argument.substr(2, equals == std::string::npos ? equals : equals - 2));
    const ConfigKey& key = known_key(name, origin);

    if (equals != std::string::npos) {
      settings.push_back({name, parse_text(key, std::string_view(argument).substr(equals + 1)), origin});
    } else if (std::holds_alternative<FieldOf<bool>>(key.field)) {
      settings.push_back({name, true, origin});
    } else {
      require(i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"),
              "{}: --{} has no value; write --{}=VALUE", origin, name, name);
      settings.push_back({name, parse_text(key, arguments[++i]), origin});
    }
  }
  return settings;
}

/// A config is TOML and a run is described in JSON, both of which are UTF-8.
void require_utf8(const ConfigSource& source) {
  const auto require_text = [](std::string_view text) {
    require(valid_utf8_prefix(text) == text.size(),
            "command line: '{}' is not UTF-8, as a config is; rename the file or folder, or use a link", text);
  };
  for (const std::string& argument : source.arguments) require_text(argument);
  require_text(source.model_path);
}

/// The same run without a pipeline, if a file has its schedule.
RunConfig without_schedule_file(RunConfig config) {
  ParallelConfig& p = config.parallelism;
  if (p.pipeline_parallel_schedule_csv.empty()) return config;
  const ParallelConfig defaults;
  p.pipeline_parallel_schedule_csv.clear();
  p.pipeline_parallel_degree = defaults.pipeline_parallel_degree;
  p.virtual_stages = defaults.virtual_stages;
  p.pipeline_parallel_layout = defaults.pipeline_parallel_layout;
  p.pipeline_parallel_schedule = defaults.pipeline_parallel_schedule;
  return config;
}

}  // namespace

RunConfig read_run_config(const ConfigSource& source) {
  require_utf8(source);
  std::vector<Setting> said = read_arguments(source.arguments);
  std::vector<Setting> settings = source.text           ? parse_toml(*source.text, source.path)
                                  : source.path.empty() ? std::vector<Setting>()
                                                        : read_toml(source.path);
  for (const Setting& setting : settings) (void)known_key(setting.name, setting.origin);
  if (!source.model_path.empty()) {
    std::erase_if(settings, [](const Setting& setting) { return setting.name.starts_with("model."); });
    settings.push_back({"model.path", source.model_path, "command line"});
  }
  for (Setting& setting : said) settings.push_back(std::move(setting));  // after the file's, so that they win

  // First, since the allowed values of the other formats depend on it.
  std::ranges::stable_partition(settings, [](const Setting& setting) { return setting.name == "training.dtype"; });

  RunConfig config;
  assign_model(settings, source, config);
  for (const Setting& setting : settings)
    if (!setting.name.starts_with("model.")) assign(setting, config);
  const RunConfig checked = source.reads_files ? config : without_schedule_file(config);
  if (source.has_layout)
    validate(checked);
  else
    validate_without_layout(checked);
  return config;
}

std::vector<std::string> take_config_arguments(std::vector<std::string>& arguments) {
  std::vector<std::string> taken, left;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i].substr(0, arguments[i].find('='));
    const bool is_config = name.starts_with("--") && name.find('.') != std::string::npos;
    (is_config ? taken : left).push_back(arguments[i]);
    if (!is_config || name != arguments[i]) continue;
    const ConfigKey* key = find_config_key(with_underscores(name.substr(2)));
    const bool needs_value = key != nullptr && !std::holds_alternative<FieldOf<bool>>(key->field);
    if (needs_value && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) taken.push_back(arguments[++i]);
  }
  arguments.swap(left);
  return taken;
}

bool sets_key(const std::vector<std::string>& arguments, std::string_view key) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument.starts_with("--") && with_underscores(argument.substr(2, argument.find('=') - 2)) == key;
  });
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;  // the table's fields need a mutable config
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (!has_value(key) || (key.applies != nullptr && !key.applies(config.model))) continue;
    if (key.name.starts_with("model.rope_scaling.") && !config.model.rope_scaling) continue;
    const auto* text_field = std::get_if<TextField>(&key.field);
    if (text_field != nullptr && text_field->text(config).empty()) continue;
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", key.name.substr(section.size() + 1), to_toml(value_of(key, copy)));
  }
  return text;
}

std::string config_help() {
  RunConfig defaults;
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (!is_there(key)) continue;
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string_view name = key.name.substr(section.size() + 1);
    const std::string line =
        section == "model" ? std::string(name) : fmt::format("{} = {}", name, to_toml(value_of(key, defaults)));
    text += fmt::format("  {:<50}  {}\n", line, key.doc);
  }
  return text;
}

}  // namespace echelon
