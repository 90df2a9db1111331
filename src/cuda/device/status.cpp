#include "cuda/device/status.h"

#include "base/error.h"

namespace echelon::cuda {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw Failure(fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

void no_kernel_for(DType dtype) { throw Failure(fmt::format("no operation computes with {}", name_of(dtype))); }

}  // namespace echelon::cuda
