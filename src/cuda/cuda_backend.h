// Ranks on NVIDIA GPUs.
#pragma once

#include "backend/backend.h"

namespace echelon::cuda {

/// Null where this machine has no GPU that can be used; `reason` then says why, as a clause.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(std::string& reason);

}  // namespace echelon::cuda
