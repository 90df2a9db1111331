// The scales of operands of float8 matmuls (ops/float8.h), and a kernel for the largest magnitudes of several of them.
// For float8.cu alone.
#pragma once

#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/device/tickets.h"
#include "cuda/ops/amax.h"
#include "cuda/ops/segments.h"
#include "ops/gpu/product_calls.h"

#include <cuda_fp8.h>

namespace echelon::cuda::float8 {

constexpr int block_threads = 256;

/// 2^k of float8_exponent() and its inverse.
struct Scale {
  float back, forth;
};
/// The last line of a rounded operand.
struct LastLine {
  float back;     // what its values are multiplied by
  unsigned amax;  // of a tensor without a place for it
};

template <class T>
struct RoundedSegment {
  const T* x;                         // [R, C]
  unsigned char *as_is, *transposed;  // null: not wanted
  float* back;
  unsigned* amax;
  std::int64_t R, C;
  __nv_fp8_interpretation_t format;
};
template <class T>
using RoundedSegments = Segments<RoundedSegment<T>, ProductCalls::most_roundings>;

/// NaN for what is not finite. Both formats' largest values are 1.75 times a power of two.
__device__ __forceinline__ Scale scale_of(unsigned amax, __nv_fp8_interpretation_t format) {
  constexpr int mantissa_bits = 23, bias = 127, most = 63;
  constexpr unsigned infinity = 0x7f800000U, mantissa = 0x7fffffU, of_one_and_three_quarters = 0x600000U;
  if (amax == 0) return {1.0F, 1.0F};
  if (amax >= infinity) return {1.0F, __uint_as_float(infinity | 1U)};
  const int exponent_of_largest = format == __NV_E4M3 ? 8 : 15,
            exponent = static_cast<int>(amax >> mantissa_bits) - bias;
  const int k = min(most, exponent_of_largest - exponent - ((amax & mantissa) > of_one_and_three_quarters ? 1 : 0));
  return {__uint_as_float(static_cast<unsigned>(bias - k) << mantissa_bits),
          __uint_as_float(static_cast<unsigned>(bias + k) << mantissa_bits)};
}

/// Each block leaves its largest magnitude, and the last block of an operand that of all.
template <class T>
__global__ void __launch_bounds__(block_threads)
    amax_kernel(RoundedSegments<T> segments, unsigned* maxima, unsigned* tickets) {
  const int i_segment = segments.of_block(static_cast<int>(blockIdx.x)), first_block = segments.first_block[i_segment],
            num_blocks = segments.first_block[i_segment + 1] - first_block;
  const RoundedSegment<T>& of = segments.at[i_segment];
  const std::int64_t num_packs = of.R * of.C / pack_size<T>, stride = std::int64_t{num_blocks} * block_threads;
  unsigned largest = 0;
  for (std::int64_t i = (std::int64_t{blockIdx.x} - first_block) * block_threads + threadIdx.x; i < num_packs;
       i += stride)
    largest = larger_of(largest, load_pack<pack_size<T>>(of.x + i * pack_size<T>));
  largest = block_largest(largest);
  if (threadIdx.x == 0) maxima[blockIdx.x] = largest;
  if (!is_last_block(tickets + i_segment, static_cast<unsigned>(num_blocks))) return;
  largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < num_blocks; i += block_threads)
    largest = max(largest, load_of_others(maxima + first_block + i));
  largest = block_largest(largest);
  if (threadIdx.x == 0) *of.amax = largest;
}

}  // namespace echelon::cuda::float8
