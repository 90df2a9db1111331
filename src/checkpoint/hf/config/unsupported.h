// Models that Echelon does not compute, by the field of config.json that says so.
#pragma once

#include "checkpoint/hf/config/config_fields.h"

namespace echelon {

/// A sentence for each field that says so, with its meaning. `is_family`: whether model_type is a family of Echelon's,
/// which says more of its fields itself. Throws Error if a field has another type than any model's.
[[nodiscard]] std::vector<std::string> unsupported_fields_of(const ConfigFields& config, bool is_family);

}  // namespace echelon
