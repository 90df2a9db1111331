// What the program finds in this library.
#include "backend/plugin.h"
#include "cuda/cuda_backend.h"

#include <exception>

extern "C" __attribute__((visibility("default"))) echelon::Backend* echelon_open_backend_4(std::string& reason) {
  try {
    return echelon::cuda::make_cuda_backend(reason).release();
  } catch (const std::exception& error) {
    reason = error.what();
    return nullptr;
  }
}
