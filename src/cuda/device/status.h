// From CUDA's error codes to exceptions.
#pragma once

#include "tensor/dtype.h"

#include <cuda_runtime.h>

namespace echelon::cuda {

/// Throws Failure with what CUDA says. `what` is a clause: "memory for the arena".
void check(cudaError_t error, const char* what);

/// Throws Failure: no operation computes with this format.
[[noreturn]] void no_kernel_for(DType dtype);

}  // namespace echelon::cuda
