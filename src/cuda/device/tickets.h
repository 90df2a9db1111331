// How blocks of one kernel leave what they computed to the last of them, so that sums over blocks take no second
// launch. Which block is the last is left to chance; what it adds, and in which order, is not. For .cu files alone.
#pragma once

#include <cuda_runtime.h>

namespace echelon::cuda {

/// Whether this block is the last of `count` that draw this ticket, which is zero again then. All threads of the block
/// call it, after they have written what the last one reads by load_of_others().
[[nodiscard]] __device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned count) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(ticket, count - 1) == count - 1;
  __syncthreads();
  __threadfence();
  return is_last;
}

/// What another block wrote: from the second level of caches, as the first may have what was there before.
template <class T>
[[nodiscard]] __device__ __forceinline__ T load_of_others(const T* address) {
  return __ldcg(address);
}

}  // namespace echelon::cuda
