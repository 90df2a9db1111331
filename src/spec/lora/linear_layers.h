// The linear layers of decoder blocks that may have adapters, and the modules that the files have them in. Of a mixture
// they are those of the shared expert (routed_modules.h has the others).
#pragma once

#include "spec/model_spec.h"

#include <string_view>
#include <vector>

namespace echelon {

/// Echelon's names of the linear layers that may have adapters, of all kinds of decoder blocks: "self_attn.q_proj", in
/// the order of the forward pass.
[[nodiscard]] std::vector<std::string_view> linear_layers(const ModelSpec& model);
/// The module that the files have the layer in: "self_attn.q_proj", or "self_attn.qkv_proj" where it is fused.
[[nodiscard]] std::string_view module_of(const ModelSpec& model, std::string_view layer);
/// The modules that may have adapters, each once.
[[nodiscard]] std::vector<std::string_view> linear_modules(const ModelSpec& model);
/// Whether decoder layer `layer` has a module, or one inside of it: those of mixtures and of MLPs are in some alone.
[[nodiscard]] bool has_module(const ModelSpec& model, std::int64_t layer, std::string_view module);
/// The fewest columns of one.
[[nodiscard]] std::int64_t narrowest_linear(const ModelSpec& model);

}  // namespace echelon
