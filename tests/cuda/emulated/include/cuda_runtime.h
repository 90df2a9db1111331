// The part of CUDA's runtime that Echelon uses, played by the host: kernels compiled by an ordinary C++ compiler run
// here, thread by thread.
//
// What it is for: every kernel and the whole backend are run, and compared with the reference, where there is no GPU,
// and under the sanitizers of the host. What it is not: fast, or a proof of what only the chip does (its memory model,
// its rounding in tensor cores, its limits on registers).
//
// It is an adversary where CUDA promises little. Streams run nothing before somebody waits, and then in a random order
// that the events allow; blocks and the threads of a block take turns in a random order; device memory is filled with
// NaN; copies from pinned memory read it late.
#pragma once

#include "cuda/emulated/execution.h"
#include "cuda/emulated/runtime.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(n) alignas(n)
#define __CUDA_ARCH__ 900

constexpr int warpSize = 32;

namespace emulated {

/// A number of the thread that runs, read when it is used.
template <unsigned (*read)(const Thread&)>
struct Register {
  operator unsigned() const {
    return read(this_thread());
  }  // NOLINT(google-explicit-constructor): as CUDA's are numbers
};
template <unsigned (*read_x)(const Thread&), unsigned (*read_y)(const Thread&), unsigned (*read_z)(const Thread&)>
struct Registers {
  Register<read_x> x;
  Register<read_y> y;
  Register<read_z> z;
};
template <auto member>
unsigned of_thread(const Thread& t) {
  return t.index.*member;
}
template <auto member>
unsigned of_block(const Thread& t) {
  return t.block->index.*member;
}
template <auto member>
unsigned of_block_size(const Thread& t) {
  return t.block->grid->block_size.*member;
}
template <auto member>
unsigned of_grid_size(const Thread& t) {
  return t.block->grid->grid_size.*member;
}

}  // namespace emulated

inline constexpr emulated::Registers<emulated::of_thread<&uint3::x>, emulated::of_thread<&uint3::y>,
                                     emulated::of_thread<&uint3::z>>
    threadIdx;
inline constexpr emulated::Registers<emulated::of_block<&uint3::x>, emulated::of_block<&uint3::y>,
                                     emulated::of_block<&uint3::z>>
    blockIdx;
inline constexpr emulated::Registers<emulated::of_block_size<&dim3::x>, emulated::of_block_size<&dim3::y>,
                                     emulated::of_block_size<&dim3::z>>
    blockDim;
inline constexpr emulated::Registers<emulated::of_grid_size<&dim3::x>, emulated::of_grid_size<&dim3::y>,
                                     emulated::of_grid_size<&dim3::z>>
    gridDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline void __syncthreads() { emulated::sync_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { emulated::sync_warp(mask); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int /*width*/ = 32) {
  return emulated::exchange(mask, value, [&](int lane) { return lane ^ lane_mask; });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int /*width*/ = 32) {
  return emulated::exchange(mask, value, [&](int lane) {
    return lane + static_cast<int>(delta) < 32 ? lane + static_cast<int>(delta) : lane;
  });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int /*width*/ = 32) {
  return emulated::exchange(
      mask, value, [&](int lane) { return lane >= static_cast<int>(delta) ? lane - static_cast<int>(delta) : lane; });
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return emulated::exchange(mask, value, [&](int lane) { return lane / width * width + source % width; });
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) { return emulated::ballot(mask, predicate); }
/// The lanes of `mask` that have the same value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const std::byte* const places = emulated::deposit(mask, &value, sizeof value);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1U) != 0 && emulated::value_of<T>(places, lane) == value) same |= 1U << lane;
  return same;
}
/// From 1; 0 if no bit is set.
inline int __ffs(int bits) { return std::countr_zero(static_cast<unsigned>(bits)) % 32 + (bits != 0 ? 1 : 0); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __any_sync(unsigned mask, bool predicate) { return emulated::ballot(mask, predicate) != 0 ? 1 : 0; }

// One kernel runs at a time, and one thread of it.
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
template <class T>
T atomicMax(T* address, T value) {
  const T before = *address;
  if (value > before) *address = value;
  return before;
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  const unsigned before = *address;
  *address = before >= limit ? 0 : before + 1;
  return before;
}
inline void __threadfence() {}
template <class T>
T __ldcg(const T* address) {
  return *address;
}

inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float exp2f(float x) { return std::exp2(x); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
template <class T>
T __ldg(const T* address) {
  return *address;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Kernels are written for one name in one namespace, as CUDA has them.
using std::erfc;
using std::exp;
using std::log;
using std::max;
using std::min;
using std::sqrt;
using std::tanh;
