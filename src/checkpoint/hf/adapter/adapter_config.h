// PEFT's adapter_config.json.
#pragma once

#include "checkpoint/hf/wrapped_weights.h"
#include "checkpoint/state/digest.h"
#include "spec/lora/lora.h"

#include <filesystem>
#include <optional>
#include <string>

namespace echelon {

inline constexpr std::string_view adapter_config_name = "adapter_config.json";
inline constexpr std::string_view adapter_weights_name = "adapter_model.safetensors";
// Of our files: PEFT reads what it does not know without an error.
inline constexpr const char *base_digest_key = "echelon_base_digest", *steps_key = "echelon_steps";

struct AdapterConfig {
  LoraConfig lora;
  std::string base;                   // the folder of the model that it was trained on, or its name
  std::optional<Digest> base_digest;  // of that folder; files of PEFT have none
  std::int64_t steps = 0;             // that Echelon trained it for; 0: unknown
  std::filesystem::path source{};     // its first folder, of which everything else stays; empty: none
  LanguageModelNames names{};         // of the modules in its files
};

[[nodiscard]] bool is_adapter_folder(const std::filesystem::path& folder);

/// The folder's, for a model. A list of all linear layers becomes "all-linear", and a dropout 0: only training has it.
/// Of a pattern instead of names, the modules are those of the folder's tensors. `names` is left to AdapterReader.
/// Throws Error naming the file and the field: for other methods than LoRA, and for what Echelon does not compute.
[[nodiscard]] AdapterConfig read_adapter_config(const std::filesystem::path& folder, const ModelSpec& model);
/// The base alone.
[[nodiscard]] std::string read_adapter_base(const std::filesystem::path& folder);

/// With the fields of config.source that change no result, if it can still be read. Throws Failure.
void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config, const ModelSpec& model);

}  // namespace echelon
