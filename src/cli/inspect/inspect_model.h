// echelon inspect of a Hugging Face folder: its tensors, and whether it can be trained.
#pragma once

#include "base/error.h"

#include <filesystem>

namespace echelon {

/// The verdict on a model that cannot be trained is printed, and is thrown as an Error too, as `train` would say it.
/// `reads_values`: also on a model with values that are NaN or infinite.
ExitStatus inspect_model(const std::filesystem::path& folder, bool reads_values, bool json);

}  // namespace echelon
