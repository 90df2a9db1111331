// The argument MODEL, which means the same to every command: a config, a Hugging Face folder or a preset.
#pragma once

#include "spec/config/config_reader.h"

#include <string>
#include <vector>

namespace echelon {

inline constexpr const char* model_argument_help =
    "a config (TOML), a Hugging Face folder, or a preset such as llama3-8b; without one, the keys below describe the "
    "run";

/// `settings`: the --section.key=value arguments of the command line.
[[nodiscard]] ConfigSource source_of_model(const std::string& model, std::vector<std::string> settings);

/// Whether `model` is the name of a preset and not of a file.
[[nodiscard]] bool is_preset(const std::string& model);

/// "; did you mean the preset llama-10m?", for a name that is similar to one; else empty.
[[nodiscard]] std::string hint_for_preset(const std::string& model);

}  // namespace echelon
