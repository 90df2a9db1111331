// What tells the model that adapters were trained on from another one.
#pragma once

#include "checkpoint/state/digest.h"

#include <cstdint>
#include <filesystem>

namespace echelon {

class ModelReader;

/// Of each weight's name, shape and three samples of its values, so that it takes no time with large models. Folders
/// and checkpoints of the same weights have the same digest, whatever their files and formats are. Throws Error.
[[nodiscard]] Digest digest_of_base(const ModelReader& model);
/// Of the model in a folder. Throws Error, also if that has adapters.
[[nodiscard]] Digest digest_of_base(const std::filesystem::path& folder);

/// Of a model that a run draws at its start.
[[nodiscard]] Digest digest_of_drawn_base(std::int64_t seed);

}  // namespace echelon
