// The fields of PEFT's adapter_config.json: which ones change what trained adapters compute, and which ones are kept.
#pragma once

#include "spec/model_spec.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace echelon {

/// Throws Error if it is no JSON object, or is of another method than LoRA.
[[nodiscard]] nlohmann::json read_adapter_json(const std::filesystem::path& folder);

/// Throws Error naming the field that changes the computation, or that is of a later PEFT and says something.
void require_supported_fields(const nlohmann::json& config, const ModelSpec& model,
                              const std::filesystem::path& folder);

/// Those of the folder that change no result, and that Echelon does not set itself: an object. Empty where the folder
/// is empty or cannot be read any longer.
[[nodiscard]] nlohmann::json kept_adapter_fields(const std::filesystem::path& folder);

}  // namespace echelon
