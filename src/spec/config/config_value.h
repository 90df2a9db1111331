// One value of a config as a user wrote it: assigning it to the key's field, and reading it back.
#pragma once

#include "spec/config/config_keys.h"

namespace echelon {

using ConfigValue =
    std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

/// A key with its value and where it was written ("run.toml:12" or "command line").
struct Setting {
  std::string name;
  ConfigValue value;
  std::string origin;
};

/// Writes the value into the key's field. Throws Error if its type or its choice is wrong; ranges are checked by
/// validate(RunConfig).
void assign(const ConfigKey& key, const ConfigValue& value, RunConfig& config);

/// The same for a setting of a known key. The sentence starts with the setting's origin, except for UnknownChoice.
void assign(const Setting& setting, RunConfig& config);

/// The value of the key's field. The key must have a field.
[[nodiscard]] ConfigValue value_of(const ConfigKey& key, RunConfig& config);

/// Parses the text after "--section.key=" for the key's type: a string key takes it as is, a list takes "3,5" or "[3,
/// 5]". Text that does not parse stays a string, so that assign() can report it.
[[nodiscard]] ConfigValue parse_text(const ConfigKey& key, std::string_view text);

/// In TOML syntax; reading it back gives the same bits.
[[nodiscard]] std::string to_toml(const ConfigValue& value);

}  // namespace echelon
