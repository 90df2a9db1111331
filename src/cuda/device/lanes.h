// The primitives of kernels: values in registers, sums over a warp or a block, and the block's shared memory. For .cu
// files alone.
#pragma once

#include "tensor/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace echelon::cuda {

constexpr int warp_size = 32;
constexpr unsigned whole_warp = 0xffffffffU;

/// The type of a tensor's values as a kernel names it.
template <class T>
struct OnDevice {
  using type = T;
};
template <>
struct OnDevice<bfloat16> {
  using type = __nv_bfloat16;
};
template <>
struct OnDevice<float16> {
  using type = __half;
};
template <class T>
using on_device = typename OnDevice<T>::type;

/// The type in which sums over T are computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

/// x rounded to nearest even.
template <class To, class From>
__device__ __forceinline__ To narrow(From x) {
  if constexpr (std::is_same_v<To, __nv_bfloat16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, __half>)
    return __float2half_rn(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(whole_warp, x, distance);
  return x;
}
template <class T>
__device__ __forceinline__ T warp_max(T x) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(whole_warp, x, distance);
    x = other > x ? other : x;
  }
  return x;
}

/// NaN if either is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
#ifdef __CUDACC__
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || a != a ? a : b;
#endif
}
__device__ __forceinline__ double larger_or_nan(double a, double b) { return a > b || a != a ? a : b; }

/// Of all threads of the block, the same on all of them; blocks of whole warps. `scratch` holds a T per warp, and may
/// be used again after the next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* scratch) {
  x = warp_sum(x);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, num_warps = static_cast<int>(blockDim.x) / warp_size;
  if (threadIdx.x % warp_size == 0) scratch[warp] = x;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < num_warps; ++i) sum += scratch[i];
  return sum;
}

/// The largest, or NaN if there is one.
template <class T>
__device__ __forceinline__ T block_max(T x, T* scratch) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    x = larger_or_nan(x, __shfl_xor_sync(whole_warp, x, distance));
  const int warp = static_cast<int>(threadIdx.x) / warp_size, num_warps = static_cast<int>(blockDim.x) / warp_size;
  if (threadIdx.x % warp_size == 0) scratch[warp] = x;
  __syncthreads();
  T max = scratch[0];
  for (int i = 1; i < num_warps; ++i) max = larger_or_nan(max, scratch[i]);
  return max;
}

/// The block's memory of Launch::shared_bytes, aligned to 128 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) unsigned char bytes[];
#else
  std::byte* const bytes = emulated::this_thread().block->shared;
#endif
  return reinterpret_cast<T*>(bytes);
}

}  // namespace echelon::cuda
