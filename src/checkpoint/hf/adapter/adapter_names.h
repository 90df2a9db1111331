// The place of each parameter of a model's adapters in PEFT's adapter_model.safetensors. There they have the names of
// the family's modules. Where several of Echelon's linear layers are one module, they share its A, and each
// has some rows of its B. Modules that are trained whole have the names that transformers gives them, where the head is
// lm_head in every family, and a tied weight is in the file under both of its names.
#pragma once

#include "checkpoint/hf/weight_names.h"
#include "spec/lora/lora_parameters.h"
#include "spec/lora/saved_modules.h"

namespace echelon {

/// Of the A of a layer, "model.layers.3.self_attn.q_proj": that of the first layer of its module.
[[nodiscard]] std::string name_of_a(const ModelSpec& model, const std::string& layer);

/// Every one by name, and the head of a tied weight.
[[nodiscard]] std::map<std::string, PlacedParameter, std::less<>> placed_adapters(const ModelSpec& model,
                                                                                  const LoraConfig& lora);

/// The tensors of the file, each once.
[[nodiscard]] std::vector<NamedShape> adapter_tensors(const ModelSpec& model, const LoraConfig& lora);

}  // namespace echelon
