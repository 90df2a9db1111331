// Makes a Hugging Face folder of another one or of a checkpoint.
#pragma once

#include "tensor/dtype.h"

#include <filesystem>
#include <optional>

namespace echelon {

/// From a checkpoint, the folder is the one that its run would have written after that step. From a Hugging Face folder
/// it has equal weights, tensor by tensor, and everything else that the folder had. Or the weights get another dtype.
/// `folder` must not exist, or be empty. Memory use is constant. Throws Error if `source` is damaged or the model
/// cannot be written, Failure if the machine cannot write.
void convert_model(const std::filesystem::path& source, const std::filesystem::path& folder,
                   std::optional<DType> dtype);

}  // namespace echelon
