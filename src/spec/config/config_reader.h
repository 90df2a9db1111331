// Reads a config from a TOML file and the command line, and writes it back as text.
#pragma once

#include "spec/config/run_config.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct ConfigSource {
  std::string path;  // a TOML file; empty: command line only
  // --section.key=value, --section.key value, or --section.flag; they override the file. Dashes equal underscores.
  std::vector<std::string> arguments;
  std::function<ModelSpec(const std::string& folder)> read_model;  // reads the config.json of model.path
  std::string model_path = {};           // model.path, which replaces the file's whole [model] section
  bool has_layout = true;                // false: the layout is still to be chosen
  bool reads_files = true;               // false: a schedule that the config names as a file is not looked at
  std::optional<std::string> text = {};  // the content of `path`, which is only a name then
};

/// The validated config. model.preset, model.path or model.model_type gives the defaults of the model's other keys.
/// Throws Error: one sentence with the key, the value, where it was written and a valid value to use.
[[nodiscard]] RunConfig read_run_config(const ConfigSource& source);

/// Moves config options (names with a dot) and their values out of a command line, for ConfigSource::arguments.
[[nodiscard]] std::vector<std::string> take_config_arguments(std::vector<std::string>& arguments);

/// Whether one of ConfigSource::arguments sets the key.
[[nodiscard]] bool sets_key(const std::vector<std::string>& arguments, std::string_view key);

/// A TOML file with every key: read_run_config() of it gives the same config. The model is written as its sizes.
[[nodiscard]] std::string to_toml(const RunConfig& config);

/// Every key with its default and its meaning, by section.
[[nodiscard]] std::string config_help();

}  // namespace echelon
