// The place of each parameter of a model's adapters in PEFT's adapter_model.safetensors. There they have the names of
// the family's modules. Where several of Echelon's linear layers are one module, they share its A, and each
// has some rows of its B. Modules that are trained whole have the names that transformers gives them, where the head is
// lm_head in every family, and a tied weight is in the file under both of its names. Where the base is a language model
// in a wrapper, all are named as the wrapper's modules.
#pragma once

#include "checkpoint/hf/weight_names.h"
#include "checkpoint/hf/wrapped_weights.h"
#include "spec/lora/lora_parameters.h"
#include "spec/lora/saved_modules.h"

namespace echelon {

/// Before the name of a module, which is that of its tensors without this and ".lora_A.weight".
inline constexpr std::string_view peft_prefix = "base_model.model.";

/// Of the A of a layer, "model.layers.3.self_attn.q_proj": that of the first layer of its module.
[[nodiscard]] std::string name_of_a(const ModelSpec& model, const std::string& layer);

/// Every one by name, and the head of a tied weight.
[[nodiscard]] std::map<std::string, PlacedParameter, std::less<>> placed_adapters(const ModelSpec& model,
                                                                                  const LoraConfig& lora,
                                                                                  const LanguageModelNames& names = {});

/// The tensors of the file, each once.
[[nodiscard]] std::vector<NamedShape> adapter_tensors(const ModelSpec& model, const LoraConfig& lora,
                                                      const LanguageModelNames& names = {});

/// How the tensors of PEFT's file name those of the language model.
[[nodiscard]] LanguageModelNames names_of_adapters(const std::map<std::string, FileTensor>& tensors);

}  // namespace echelon
