// Reads and writes config.json as a family's description says. RoPE, windows and mixtures of experts, whose fields
// depend on each other, have files of their own.
#pragma once

#include "checkpoint/hf/config/config_fields.h"
#include "spec/families/family.h"

#include <nlohmann/json.hpp>

namespace echelon {

/// The model of a config.json of that family. Throws Error naming the file, the key and the value.
[[nodiscard]] ModelSpec read_family_fields(const ConfigFields& config, Family family);

/// Sets the fields of the model, and keeps all others. A fixed field or a dropout keeps the value that it has.
void write_family_fields(const ModelSpec& model, nlohmann::ordered_json& config);

/// After the windows, with which RoPE may differ.
void read_rope(const ConfigFields& config, const RopeFields& fields, ModelSpec& model);
/// In the dialects of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters).
void write_rope(const ModelSpec& model, const RopeFields& fields, nlohmann::ordered_json& config);

void read_windows(const ConfigFields& config, const FamilyDescription& family, ModelSpec& model);
void write_windows(const ModelSpec& model, WindowFields fields, nlohmann::ordered_json& config);

void read_mixture(const ConfigFields& config, const MixtureFields& fields, ModelSpec& model);
void write_mixture(const ModelSpec& model, const MixtureFields& fields, nlohmann::ordered_json& config);

}  // namespace echelon
