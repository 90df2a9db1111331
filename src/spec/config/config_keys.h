// Every key of a config in one table: parsing, unknown-key errors, ranges, the listing in --help and printing a config
// back all read it.
#pragma once

#include "spec/config/run_config.h"

#include <limits>
#include <span>
#include <variant>

namespace echelon {

/// Where a key's value lies in a config.
template <class T>
using FieldOf = T& (*)(RunConfig&);

/// A choice by its exact name.
struct ChoiceField {
  std::string_view (*name)(const RunConfig& config);  // empty: the default is left
  void (*parse)(std::string_view key, std::string_view name, RunConfig& config);
};

/// Keys that choose what the other model keys start from; they have no field of their own.
struct ModelBase {};

/// Keys that are planned: named here so that they are refused as what they are, not as misspellings.
struct NotYet {};

using ConfigField = std::variant<FieldOf<std::int64_t>, FieldOf<double>, FieldOf<bool>, FieldOf<std::string>,
                                 FieldOf<PipelineLayout>, FieldOf<PipelineSchedule>, FieldOf<ReshardAfterForward>,
                                 FieldOf<LrDecay>, FieldOf<Family>, FieldOf<BlockOperations>, FieldOf<RecomputeMethod>,
                                 FieldOf<AxisOrder>, ChoiceField, ModelBase, NotYet>;

struct ValueRange {
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
};

struct ConfigKey {
  std::string_view name;  // "training.steps"
  ConfigField field;
  std::string_view doc;
  ValueRange range = {};                              // of numbers; both ends are allowed
  bool (*applies)(const ModelSpec& model) = nullptr;  // null: to every model
};

[[nodiscard]] std::span<const ConfigKey> config_keys();

/// Whether a config has a value of its own under this key: not for ModelBase and NotYet.
[[nodiscard]] bool has_value(const ConfigKey& key);
[[nodiscard]] bool is_there(const ConfigKey& key);  // false for NotYet

/// Whether its value is one text.
[[nodiscard]] bool takes_text(const ConfigKey& key);
/// Whether its value is a list of names, or one of them.
[[nodiscard]] bool takes_names(const ConfigKey& key);

/// Null if there is none.
[[nodiscard]] const ConfigKey* find_config_key(std::string_view name);
/// Among those that are there.
[[nodiscard]] std::string closest_config_key(std::string_view name);

/// Section names in the table's order, e.g. "model", "data".
[[nodiscard]] std::vector<std::string_view> config_sections();
[[nodiscard]] std::string_view section_of(const ConfigKey& key);

}  // namespace echelon
