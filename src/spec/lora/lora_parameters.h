// The parameters of a model with adapters that are trained and saved, and those that are frozen.
#pragma once

#include "spec/lora/lora.h"
#include "spec/parameter_list.h"

#include <string>
#include <vector>

namespace echelon {

/// Of the adapters, in the order of the forward pass; names as those of weights, with ".lora_A.weight" and
/// ".lora_B.weight".
[[nodiscard]] std::vector<NamedShape> adapter_parameters(const ModelSpec& model, const LoraConfig& lora);
/// Of the model's own, those that are trained next to adapters.
[[nodiscard]] std::vector<NamedShape> whole_parameters(const ModelSpec& model, const LoraConfig& lora);
/// "model.layers.3.self_attn.q_proj.weight" of that layer's A or B.
[[nodiscard]] std::string weight_of_adapter(const std::string& parameter);

/// What a run has to save: every parameter of the model, or if it has adapters what it trains.
[[nodiscard]] std::vector<NamedShape> saved_parameters(const ModelSpec& model, const LoraConfig& lora);

}  // namespace echelon
