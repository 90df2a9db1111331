// The model of a config: the base of its keys, and sizes derived from other sizes.
#pragma once

#include "spec/config/config_reader.h"
#include "spec/config/config_value.h"

namespace echelon {

/// Sets config.model from model.preset, model.path or model.model_type, then the other model.* settings, then the sizes
/// that follow from them. Throws Error if none or several of the three are set, or a key does not apply to the family.
void assign_model(const std::vector<Setting>& settings, const ConfigSource& source, RunConfig& config);

}  // namespace echelon
