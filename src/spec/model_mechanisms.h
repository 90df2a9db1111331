// What config keys have no names for: a model's choices that its family fixes in config.json. As one text, such as
// "norm_adds_one=true rope_scaling.rope_type=yarn", they go into configs and checkpoints.
#pragma once

#include "spec/model_spec.h"

#include <string>
#include <string_view>

namespace echelon {

/// The choices in which a model differs from its family_defaults; empty if there is none.
[[nodiscard]] std::string mechanisms_of(const ModelSpec& model);
/// Sets them. Throws Error with the key, the field or the value, and a valid one.
void set_mechanisms(std::string_view key, std::string_view text, ModelSpec& model);

}  // namespace echelon
