// Makes a step's folder a complete checkpoint.
#pragma once

#include "checkpoint/state/manifest.h"

namespace echelon {

/// Writes the manifest under the name of its attempt, which no file has yet, and makes it durable. All files that it
/// names must be durable already. Throws Failure.
void publish_manifest(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace echelon
