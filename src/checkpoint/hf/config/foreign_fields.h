// Fields that change the computation of other families than the one that a config.json names.
#pragma once

#include "checkpoint/hf/config/config_fields.h"
#include "spec/families/family.h"

namespace echelon {

/// A sentence for each field that the family does not have and that asks for a computation that Echelon would not do.
/// Fields with the value that changes nothing, and fields that are not in its list, are kept.
[[nodiscard]] std::vector<std::string> foreign_fields_of(const ConfigFields& config, const FamilyDescription& family);

}  // namespace echelon
