// One table of all config keys. Parsing, unknown-key errors, ranges, --help and printing a config all read it.
#pragma once

#include "spec/config/run_config.h"

#include <limits>
#include <span>
#include <variant>

namespace echelon {

/// A reference to a key's value in a config.
template <class T>
using FieldOf = T& (*)(RunConfig&);

/// A choice by its exact name.
struct ChoiceField {
  std::string_view (*name)(const RunConfig& config);  // empty: the default applies
  void (*parse)(std::string_view key, std::string_view name, RunConfig& config);
};

/// A value that is written as a text; an empty one is not written.
struct TextField {
  std::string (*text)(const RunConfig& config);
  void (*parse)(std::string_view key, std::string_view text, RunConfig& config);
};

/// Keys that choose the defaults of the other model keys. They have no field of their own.
struct ModelBase {};

/// Planned keys, listed here so that they are refused as unsupported, not as misspellings.
struct NotYet {};

using ConfigField = std::variant<FieldOf<std::int64_t>, FieldOf<double>, FieldOf<bool>, FieldOf<std::string>,
                                 FieldOf<PipelineLayout>, FieldOf<PipelineSchedule>, FieldOf<ReshardAfterForward>,
                                 FieldOf<LrDecay>, FieldOf<Family>, FieldOf<BlockOperations>, FieldOf<RecomputeMethod>,
                                 FieldOf<AxisOrder>, FieldOf<LoadExclusions>, FieldOf<std::vector<std::int64_t>>,
                                 FieldOf<std::vector<std::string>>, ChoiceField, TextField, ModelBase, NotYet>;

struct ValueRange {
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
};

struct ConfigKey {
  std::string_view name;  // "training.steps"
  ConfigField field;
  std::string_view doc;
  ValueRange range = {};                              // inclusive range of numeric keys
  bool (*applies)(const ModelSpec& model) = nullptr;  // null: applies to every model
};

[[nodiscard]] std::span<const ConfigKey> config_keys();

/// Whether a config has a value of its own under this key: not for ModelBase and NotYet.
[[nodiscard]] bool has_value(const ConfigKey& key);
[[nodiscard]] bool is_there(const ConfigKey& key);  // false for NotYet

/// Whether its value is one text.
[[nodiscard]] bool takes_text(const ConfigKey& key);
/// Whether its value is a list of integers, or may be one.
[[nodiscard]] bool takes_integers(const ConfigKey& key);
/// Whether its value is a list of names, or one of them.
[[nodiscard]] bool takes_names(const ConfigKey& key);

/// Null if there is none.
[[nodiscard]] const ConfigKey* find_config_key(std::string_view name);
/// The known key with the most similar name.
[[nodiscard]] std::string closest_config_key(std::string_view name);

/// Section names in the table's order, e.g. "model", "data".
[[nodiscard]] std::vector<std::string_view> config_sections();
[[nodiscard]] std::string_view section_of(const ConfigKey& key);

}  // namespace echelon
