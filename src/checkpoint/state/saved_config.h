// The config of a checkpoint's run.
#pragma once

#include "checkpoint/state/manifest.h"
#include "spec/config/run_config.h"

namespace echelon {

/// Throws Error naming the folder if this program does not know what the manifest says.
[[nodiscard]] RunConfig config_of(const Manifest& manifest, const std::filesystem::path& folder);

}  // namespace echelon
