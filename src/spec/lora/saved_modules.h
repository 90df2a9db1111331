// Modules that are trained whole, next to adapters: PEFT's modules_to_save. As there, a name stands for all modules
// whose names end with it ("norm": every norm) and for all that is in them, and these have no adapters.
#pragma once

#include "spec/lora/lora.h"

#include <string>
#include <string_view>

namespace echelon {

inline constexpr std::string_view tied_weight = "model.embed_tokens.weight", head_weight = "lm_head.weight";

/// The module of a parameter as transformers names it, with * for the layer: "transformer.h.*.attn.c_attn".
[[nodiscard]] std::string module_of_parameter(const ModelSpec& model, std::string_view parameter);

/// Whether a parameter is trained whole. A tied weight is in the embedding and in the head.
[[nodiscard]] bool is_saved_whole(const LoraConfig& lora, const ModelSpec& model, std::string_view parameter);
/// Whether that is so of a weight that is the embedding's and the head's.
[[nodiscard]] bool saves_tied_weight(const LoraConfig& lora, const ModelSpec& model);
/// Whether PEFT gives a linear module of a block no adapter because it is, or is in, one of that name.
[[nodiscard]] bool is_kept_from_adapters(const LoraConfig& lora, const ModelSpec& model, std::string_view module);

/// Throws Error with the key, the value and a valid one.
void check_modules_to_save(const LoraConfig& lora, const ModelSpec& model);

}  // namespace echelon
