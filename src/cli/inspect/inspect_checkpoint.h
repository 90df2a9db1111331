// echelon inspect of a step's folder of checkpoints.
#pragma once

#include "base/error.h"

#include <filesystem>

namespace echelon {

/// With verify, all of it is read. Throws Error if it is not what its digests say.
ExitStatus inspect_checkpoint(const std::filesystem::path& folder, bool verify, bool json);

}  // namespace echelon
