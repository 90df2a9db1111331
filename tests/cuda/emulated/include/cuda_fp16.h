// CUDA's float16 on the host, as far as the kernels use it.
#pragma once

#include "cuda_runtime.h"

struct __half {
  std::uint16_t bits = 0;
  __half() = default;
  explicit __half(float value) {
    const auto rounded = static_cast<_Float16>(value);
    std::memcpy(&bits, &rounded, sizeof bits);
  }
};
struct alignas(4) __half2 {
  __half x, y;
};
inline float __half2float(__half x) {
  _Float16 value;
  std::memcpy(&value, &x.bits, sizeof value);
  return static_cast<float>(value);
}
inline __half __float2half_rn(float x) { return __half(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
