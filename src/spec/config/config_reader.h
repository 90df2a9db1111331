// A config out of a TOML file and the command line, and back into text.
#pragma once

#include "spec/config/run_config.h"

#include <functional>
#include <string>
#include <vector>

namespace echelon {

struct ConfigSource {
  std::string path;  // a TOML file; empty: the command line says everything
  // --section.key=value, --section.key value, or --section.flag; they win over the file. Dashes equal underscores.
  std::vector<std::string> arguments;
  std::function<ModelSpec(const std::string& folder)> read_model;  // reads the config.json of model.path
  std::string model_path = {};  // model.path in place of all that the file says in [model]
};

/// The validated config. model.preset, model.path or model.model_type says what the model's other keys start from.
/// Throws Error, one sentence with the key, the value, where it was written and a valid value to use.
[[nodiscard]] RunConfig read_run_config(const ConfigSource& source);

/// Moves what ConfigSource::arguments wants out of a command line: options whose name has a dot, with their values.
[[nodiscard]] std::vector<std::string> take_config_arguments(std::vector<std::string>& arguments);

/// Whether one of ConfigSource::arguments sets the key.
[[nodiscard]] bool sets_key(const std::vector<std::string>& arguments, std::string_view key);

/// A TOML file with every key: read_run_config() of it gives the same config. The model is spelled out by its sizes.
[[nodiscard]] std::string to_toml(const RunConfig& config);

/// Every key with its default and its meaning, by section.
[[nodiscard]] std::string config_help();

}  // namespace echelon
