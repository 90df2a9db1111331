// Counts the pairs (query, key) whose scores attention's kernels leave after their masks, on the emulated device alone
// (tests/cuda/emulated). For .cu files alone.
#pragma once

#include <cuda_runtime.h>

namespace echelon::cuda {

#ifdef __CUDACC__
enum class PairsOf : int { forward, queries, keys };
template <PairsOf which, class Count>
__device__ __forceinline__ void note_pairs(const Count& /*count*/) {}
#else
using PairsOf = emulated::PairsOf;
/// count(): those of this thread in a tile.
template <PairsOf which, class Count>
void note_pairs(const Count& count) {
  emulated::note_pairs(which, count());
}
#endif

}  // namespace echelon::cuda
