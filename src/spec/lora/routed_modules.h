// What a mixture of experts keeps next to adapters: routers, routed experts, and the gate of a shared expert. They have
// no adapters, and are not trained whole.
#pragma once

#include "spec/model_spec.h"

#include <string_view>
#include <vector>

namespace echelon {

/// Of a decoder block, as transformers names them: it has all routed experts of a layer in one module.
[[nodiscard]] std::vector<std::string_view> routed_modules(const ModelSpec& model);
/// That of a parameter of a decoder block, "mlp.experts.up_proj"; empty: it is of another one.
[[nodiscard]] std::string_view routed_module_of(std::string_view parameter);

/// "the router" and the like, if modules of theirs are named so in files or in transformers, or end so; else empty.
[[nodiscard]] std::string_view routed_words(const ModelSpec& model, std::string_view name);

}  // namespace echelon
