// Makes the Hugging Face folder of a checkpoint's model.
#pragma once

#include "tensor/dtype.h"

#include <filesystem>
#include <optional>

namespace echelon {

/// The folder is the one that the run of the checkpoint would have written after that step, or has weights of another
/// dtype. `folder` must not exist, or be empty. Memory use is constant. Throws Error if the checkpoint is damaged or
/// the model cannot be written, Failure if the machine cannot write.
void convert_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::optional<DType> dtype);

}  // namespace echelon
