// Models that Echelon does not compute, by the field of config.json that says so.
#pragma once

#include "checkpoint/hf/config/config_fields.h"

namespace echelon {

/// Throws Error naming the field and what it means, of a config whose model_type is no family of Echelon's. Returns if
/// no field says why.
void refuse_unsupported(const ConfigFields& config);

}  // namespace echelon
