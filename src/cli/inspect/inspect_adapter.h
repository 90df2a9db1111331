// echelon inspect of a folder of adapters in PEFT's format: its fields and tensors, and whether its base has them.
#pragma once

#include "base/error.h"

#include <filesystem>

namespace echelon {

/// A base that is no folder here is a note. What does not fit the base is printed, and is thrown as an Error too, as
/// `generate` would say it. Throws Error if the folder has no adapters of LoRA.
ExitStatus inspect_adapter(const std::filesystem::path& folder, bool json);

}  // namespace echelon
