// Tensor cores: products of fragments that the lanes of a warp hold together, their loads from shared memory, and
// asynchronous copies from global to shared memory. For .cu files alone, on chips from sm_80 on; NVIDIA's PTX manual
// draws the fragments' layouts.
//
// A fragment's values, for lane l: of c [16, 8], c[0] and c[1] are in row l / 4, columns 2 (l % 4) and the next, c[2]
// and c[3] eight rows below. Of a [16, 16] each register holds two values: a[0] at row l / 4, columns 2 (l % 4) and the
// next, a[1] eight rows below, a[2] and a[3] eight columns to the right of them. So two neighbouring c, narrowed, are
// an a. Of b [16, 8] b[0] holds rows 2 (l % 4) and the next of column l / 4, b[1] the same eight rows below.
#pragma once

#include "cuda/device/lanes.h"

#include <cstdint>

namespace echelon::cuda {

using FragmentA = std::uint32_t[4];
using FragmentB = std::uint32_t[2];
using FragmentC = float[4];

/// c += a b, of bfloat16 with sums in float32.
__device__ __forceinline__ void multiply_add(FragmentC& c, const FragmentA& a, const std::uint32_t b0,
                                             const std::uint32_t b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulated::multiply_add(c, a, b0, b1);
#endif
}

/// A place in the block's dynamic shared memory: bytes from its start, which takes one register where a pointer takes
/// two.
using SharedPlace = std::uint32_t;

#ifdef __CUDACC__
__device__ __forceinline__ std::uint32_t address_of(SharedPlace place) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(dynamic_shared<unsigned char>())) + place;
}
#endif
template <class T>
__device__ __forceinline__ T* pointer_to(SharedPlace place) {
  return reinterpret_cast<T*>(dynamic_shared<unsigned char>() + place);
}

/// Four 8 x 8 matrices of 16-bit values: lanes 8 m .. 8 m + 7 give the addresses of the rows of matrix m (16 bytes
/// each, aligned). Of matrix m a lane receives row l / 4, columns 2 (l % 4) and the next, in out[m].
__device__ __forceinline__ void load_matrices(std::uint32_t (&out)[4], SharedPlace row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address_of(row))
               : "memory");
#else
  emulated::load_matrices(out, row, false);
#endif
}
/// The same of the transposed matrices: rows 2 (l % 4) and the next of column l / 4.
__device__ __forceinline__ void load_transposed_matrices(std::uint32_t (&out)[4], SharedPlace row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address_of(row))
               : "memory");
#else
  emulated::load_matrices(out, row, true);
#endif
}

/// Starts to copy num_bytes (4 or 16, to which both sides are aligned) from global to shared memory; zeros if there is
/// nothing to read, whatever `global` is.
template <int num_bytes>
__device__ __forceinline__ void begin_copy(SharedPlace shared, const void* global, bool exists) {
  static_assert(num_bytes == 4 || num_bytes == 16);
#ifdef __CUDACC__
  const int to_read = exists ? num_bytes : 0;
  if constexpr (num_bytes == 16)  // .cg: past the first-level cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address_of(shared)), "l"(global), "r"(to_read)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address_of(shared)), "l"(global), "r"(to_read)
                 : "memory");
#else
  emulated::begin_copy(shared, exists ? global : nullptr, num_bytes);
#endif
}
/// The copies that this thread has started since the last call become a group, which may be empty.
__device__ __forceinline__ void close_group_of_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
  emulated::close_group_of_copies();
#endif
}
/// Returns when at most `count` of this thread's groups are pending, the last ones. The copies of other threads are
/// visible after a barrier.
template <int count>
__device__ __forceinline__ void wait_for_copies_but_last() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;\n" ::"n"(count) : "memory");
#else
  emulated::wait_for_copies_but_last(count);
#endif
}

/// 2^x to about 22 bits; zero for what would be denormal.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/// Two values rounded to bfloat16, the first in the lower half, as fragments hold them.
__device__ __forceinline__ std::uint32_t narrow_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

}  // namespace echelon::cuda
