// The weights and adapters with which a run starts, as files have them.
#pragma once

#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/model_reader.h"
#include "spec/config/run_config.h"

#include <optional>

namespace echelon {

/// Throws Error, for a checkpoint.initial_load_path that is read.
void require_initial_folder(const RunConfig& config);

/// Of checkpoint.initial_load_path; none: they are drawn. Throws Error if that is another model.
[[nodiscard]] std::optional<ModelReader> initial_weights(const RunConfig& config);

/// Of lora.initial_load_path; none: they are drawn. `base` is the digest of the run's base. Throws Error if they have
/// other sizes than [lora] says, or another base.
[[nodiscard]] std::optional<AdapterReader> initial_adapters(const RunConfig& config, const std::optional<Digest>& base);

}  // namespace echelon
