// How kernels are started: by a function, so that one source serves CUDA's compiler and the emulation of tests/cuda.
#pragma once

#include "cuda/device/status.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace echelon::cuda {

struct Launch {
  std::int64_t num_blocks = 1;  // nothing is launched when there are none
  int num_threads = 256;        // of a block
  std::int64_t num_blocks_y = 1, num_blocks_z = 1;
  std::size_t shared_bytes = 0;  // for dynamic_shared()
  cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (how.num_blocks == 0 || how.num_blocks_y == 0 || how.num_blocks_z == 0) return;
  constexpr std::size_t granted_bytes = 48 * 1024;  // without asking
  if (how.shared_bytes > granted_bytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(how.shared_bytes)),
          "shared memory of a kernel");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(how.num_blocks), static_cast<unsigned>(how.num_blocks_y),
                        static_cast<unsigned>(how.num_blocks_z));
  config.blockDim = dim3(static_cast<unsigned>(how.num_threads));
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), "the start of a kernel");
}

/// Blocks of `threads` for `count` elements.
[[nodiscard]] constexpr std::int64_t blocks_for(std::int64_t count, std::int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

}  // namespace echelon::cuda
