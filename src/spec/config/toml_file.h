// A TOML file as a flat list of settings: [training] steps = 5 becomes {"training.steps", 5}.
#pragma once

#include "spec/config/config_value.h"

namespace echelon {

/// Sorted by name; dashes in names become underscores. Throws Error with file:line for a syntax error, a value of
/// unknown type, a key outside a section or an unknown section.
[[nodiscard]] std::vector<Setting> read_toml(const std::string& path);
/// The same of a text, whose errors start with `name`.
[[nodiscard]] std::vector<Setting> parse_toml(const std::string& text, const std::string& name);

}  // namespace echelon
