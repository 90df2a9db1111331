// The largest magnitudes of what a kernel writes, which float8 matmuls read (ops/float8.h), without another pass over
// it. Magnitudes are compared as the bits of float32, which have the order of positive values, with NaN above all; the
// largest does not depend on the order of blocks. For .cu files alone.
#pragma once

#include "cuda/device/packs.h"
#include "cuda/device/tickets.h"
#include "cuda/device/workspace.h"
#include "cuda/ops/rows.h"

namespace echelon::cuda {

/// Of `count` tensors that one kernel writes. Null where nothing is wanted.
template <int count>
struct Amaxes {
  unsigned* zeros = nullptr;     // the largest so far of each, and a ticket; zeros again after the last block
  unsigned* places[count] = {};  // of the results
};

template <class... Tensors>
[[nodiscard]] Amaxes<sizeof...(Tensors)> amaxes_of(const Workspace& workspace, const Tensors&... written) {
  Amaxes<sizeof...(Tensors)> amaxes = {nullptr, {reinterpret_cast<unsigned*>(written.amax)...}};
  if ((written.has_amax || ...)) amaxes.zeros = workspace.zeros();
  return amaxes;
}

/// The bits of |x|. Float64 has no float8 matmuls.
template <class T>
__device__ __forceinline__ unsigned magnitude_of(T x) {
  constexpr unsigned magnitude = 0x7fffffffU;
  if constexpr (std::is_same_v<T, double>)
    return 0;
  else
    return __float_as_uint(widen(x)) & magnitude;
}
/// The largest of a pack, and of `than`.
template <class T, int width>
__device__ __forceinline__ unsigned larger_of(unsigned than, const Pack<T, width>& x) {
#pragma unroll
  for (int i = 0; i < width; ++i) than = max(than, magnitude_of(x.at[i]));
  return than;
}

/// Of all threads of the block, on the first one.
__device__ __forceinline__ unsigned block_largest(unsigned largest) {
  __shared__ unsigned of_warps[most_team_threads / warp_size];
  largest = warp_max(largest);
  if (threadIdx.x % warp_size == 0) of_warps[threadIdx.x / warp_size] = largest;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned warp = 1; warp < blockDim.x / warp_size; ++warp) largest = max(largest, of_warps[warp]);
  __syncthreads();
  return largest;
}

/// Leaves the largest of all threads of `num_blocks` blocks. All threads of these blocks call it, once.
template <int count>
__device__ __forceinline__ void leave_amaxes(const Amaxes<count>& to, const unsigned (&largest)[count],
                                             unsigned num_blocks) {
  if (to.zeros == nullptr) return;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (to.places[i] == nullptr) continue;
    const unsigned of_block = block_largest(largest[i]);
    if (threadIdx.x == 0 && of_block > load_of_others(to.zeros + i)) atomicMax(to.zeros + i, of_block);
  }
  if (!is_last_block(to.zeros + count, num_blocks) || threadIdx.x != 0) return;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (to.places[i] == nullptr) continue;
    *to.places[i] = load_of_others(to.zeros + i);
    to.zeros[i] = 0;
  }
}

}  // namespace echelon::cuda
