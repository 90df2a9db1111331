#include "spec/config_reader.h"

#include "base/error.h"
#include "spec/config_model.h"
#include "spec/config_value.h"
#include "spec/toml_file.h"

#include <algorithm>

namespace echelon {
namespace {

const ConfigKey& known_key(std::string_view name, const std::string& origin) {
  const ConfigKey* key = find_config_key(name);
  require(key != nullptr, "{}: there is no key {}; nearest: {}", origin, name, nearest_config_key(name));
  return *key;
}

// "--training.seq-len=64", "--training.seq-len 64" (the value being the next argument) or "--parallelism.sequence-parallel".
std::vector<Setting> read_arguments(const std::vector<std::string>& arguments) {
  const std::string origin = "command line";
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    require(argument.starts_with("--") && argument.size() > 2, "{}: '{}' is no option; options of a run look like --training.steps=100", origin, argument);
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const ConfigKey& key = known_key(name, origin);

    if (equals != std::string::npos) {
      settings.push_back({name, parse_text(key, std::string_view(argument).substr(equals + 1)), origin});
    } else if (std::holds_alternative<FieldOf<bool>>(key.field)) {
      settings.push_back({name, true, origin});
    } else {
      require(i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"), "{}: --{} has no value; write --{}=VALUE", origin, name, name);
      settings.push_back({name, parse_text(key, arguments[++i]), origin});
    }
  }
  return settings;
}

}  // namespace

RunConfig read_run_config(const ConfigSource& source) {
  std::vector<Setting> settings = source.path.empty() ? std::vector<Setting>() : read_toml(source.path);
  for (const Setting& setting : settings) (void)known_key(setting.name, setting.origin);
  for (Setting& setting : read_arguments(source.arguments)) settings.push_back(std::move(setting));

  RunConfig config;
  assign_model(settings, source, config);
  for (const Setting& setting : settings)
    if (!setting.name.starts_with("model.")) assign(setting, config);
  validate(config);
  return config;
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;  // the table's fields are those of a config that may change
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (std::holds_alternative<ModelBase>(key.field) || (key.applies != nullptr && !key.applies(config.model))) continue;
    if (key.name.starts_with("model.rope_scaling.") && !config.model.rope_scaling) continue;
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
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string_view name = key.name.substr(section.size() + 1);
    const std::string line = section == "model" ? std::string(name) : fmt::format("{} = {}", name, to_toml(value_of(key, defaults)));
    text += fmt::format("  {:<50}  {}\n", line, key.doc);
  }
  return text;
}

}  // namespace echelon
