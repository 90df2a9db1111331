// CUDA's bfloat16 on the host, as far as the kernels use it.
#pragma once

#include "tensor/dtype.h"

#include "cuda/emulated/warp_matrices.h"
#include "cuda_runtime.h"

struct __nv_bfloat16 {
  std::uint16_t bits = 0;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(echelon::bfloat16(value).bits) {}
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  echelon::bfloat16 half;
  half.bits = x.bits;
  return static_cast<float>(half);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 half;
  half.bits = bits;
  return half;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 half) { return half.bits; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
