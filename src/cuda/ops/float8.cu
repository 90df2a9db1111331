#include "cuda/ops/float8.h"

#include "cuda/device/launch.h"
#include "cuda/ops/numbers.h"

#include <cuda_fp8.h>

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

/// After the rounded operands, in the last line of the scratch. Maxima are compared as the bits of float32, which have
/// the order of positive values, with NaN above all. So the maximum does not depend on the order of threads.
struct Scales {
  unsigned amax[2];
  float back[2];
};

template <class T>
__global__ void __launch_bounds__(block_threads) amax_kernel(const T* x, std::int64_t num_packs, unsigned* amax) {
  constexpr unsigned magnitude = 0x7fffffffU;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * block_threads;
  unsigned largest = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; i < num_packs;
       i += stride) {
    const auto wide = widen(load_pack<pack_size<T>>(x + i * pack_size<T>));
#pragma unroll
    for (int j = 0; j < pack_size<T>; ++j) largest = max(largest, __float_as_uint(wide.at[j]) & magnitude);
  }
  __shared__ unsigned of_warps[block_threads / warp_size];
  largest = warp_max(largest);
  if (threadIdx.x % warp_size == 0) of_warps[threadIdx.x / warp_size] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const unsigned of_warp : of_warps) largest = max(largest, of_warp);
  atomicMax(amax, largest);
}

/// 2^k of float8_exponent(): NaN for what is not finite. Both formats' largest values are 1.75 times a power of two.
struct Scale {
  float forth, back;
};
__device__ __forceinline__ Scale scale_of(unsigned amax, int exponent_of_largest) {
  constexpr int mantissa_bits = 23, bias = 127, most = 63;
  constexpr unsigned infinity = 0x7f800000U, mantissa = 0x7fffffU, of_one_and_three_quarters = 0x600000U;
  if (amax == 0) return {1.0F, 1.0F};
  if (amax >= infinity) return {__uint_as_float(infinity | 1U), 1.0F};
  const int exponent = static_cast<int>(amax >> mantissa_bits) - bias;
  const int k = min(most, exponent_of_largest - exponent - ((amax & mantissa) > of_one_and_three_quarters ? 1 : 0));
  return {__uint_as_float(static_cast<unsigned>(bias + k) << mantissa_bits),
          __uint_as_float(static_cast<unsigned>(bias - k) << mantissa_bits)};
}

template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ Scale scale_of(unsigned amax) {
  return scale_of(amax, format == __NV_E4M3 ? 8 : 15);
}

constexpr int bytes_at_once = 16;
using Bytes = Pack<unsigned char, bytes_at_once>;

template <__nv_fp8_interpretation_t format>
__device__ __forceinline__ unsigned short two_in_float8(float x, float y) {
  return __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, format);
}

/// Sixteen values a thread.
template <class T, __nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(block_threads)
    round_kernel(const T* x, unsigned char* out, std::int64_t num_packs, const unsigned* amax, float* back) {
  const Scale scale = scale_of<format>(*amax);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (i == 0) *back = scale.back;
  if (i >= num_packs) return;
  const auto wide = widen(load_pack<bytes_at_once>(x + i * bytes_at_once));
  Bytes bytes;
#pragma unroll
  for (int j = 0; j < bytes_at_once; j += 2) {
    const unsigned short two = two_in_float8<format>(wide.at[j] * scale.forth, wide.at[j + 1] * scale.forth);
    bytes.at[j] = static_cast<unsigned char>(two);
    bytes.at[j + 1] = static_cast<unsigned char>(two >> 8);
  }
  store_pack(out + i * bytes_at_once, bytes);
}

/// out [C, R] of x [R, C], in tiles that are turned in shared memory: whole lines are read and 64 bytes in a row are
/// written.
template <class T, __nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(block_threads)
    round_transposed_kernel(const T* x, unsigned char* out, std::int64_t R, std::int64_t C, const unsigned* amax,
                            float* back) {
  constexpr int tile = 64, pitch = tile + bytes_at_once, width = pack_size<T>, packs_of_row = tile / width;
  __align__(16) __shared__ unsigned char turned[tile * pitch];
  const Scale scale = scale_of<format>(*amax);
  const auto thread = static_cast<int>(threadIdx.x);
  // One size of the grid for both: a second one ends at 65535 blocks, which is 4 million tokens.
  const std::int64_t column_tiles = (C + tile - 1) / tile, first_column = blockIdx.x % column_tiles * tile,
                     first_row = blockIdx.x / column_tiles * tile;
  if (blockIdx.x == 0 && thread == 0) *back = scale.back;
  for (int i = thread; i < tile * packs_of_row; i += block_threads) {
    const int row = i / packs_of_row, column = i % packs_of_row * width;
    if (first_row + row >= R || first_column + column >= C) continue;
    const auto wide = widen(load_pack<width>(x + (first_row + row) * C + first_column + column));
#pragma unroll
    for (int j = 0; j < width; j += 2) {
      const unsigned short two = two_in_float8<format>(wide.at[j] * scale.forth, wide.at[j + 1] * scale.forth);
      turned[(column + j) * pitch + row] = static_cast<unsigned char>(two);
      turned[(column + j + 1) * pitch + row] = static_cast<unsigned char>(two >> 8);
    }
  }
  __syncthreads();
  constexpr int packs_of_column = tile / bytes_at_once;
  for (int i = thread; i < tile * packs_of_column; i += block_threads) {
    const int column = i / packs_of_column, row = i % packs_of_column * bytes_at_once;
    if (first_row + row >= R || first_column + column >= C) continue;
    store_pack(out + (first_column + column) * R + first_row + row,
               load_pack<bytes_at_once>(turned + column * pitch + row));
  }
}

struct Rounding {
  Tensor x;
  bool is_transposed = false;
  unsigned char* out = nullptr;
  unsigned* amax = nullptr;
  float* back = nullptr;
};

template <__nv_fp8_interpretation_t format, class T>
void round_operand(const Rounding& rounding, int num_multiprocessors, cudaStream_t stream) {
  using D = on_device<T>;
  if constexpr (std::is_same_v<D, double>) {
    no_kernel_for(DType::float64);
  } else {
    const Tensor& x = rounding.x;
    const std::int64_t count = x.num_elements(), most_blocks = std::int64_t{8} * num_multiprocessors;
    const std::int64_t num_packs = count / pack_size<D>;
    launch({.num_blocks = std::min(most_blocks, blocks_for(num_packs, block_threads)),
            .num_threads = block_threads,
            .stream = stream},
           amax_kernel<D>, numbers<T>(x), num_packs, rounding.amax);
    if (rounding.is_transposed) {
      launch({.num_blocks = blocks_for(x.size(1), 64) * blocks_for(x.size(0), 64),
              .num_threads = block_threads,
              .stream = stream},
             round_transposed_kernel<D, format>, numbers<T>(x), rounding.out, x.size(0), x.size(1), rounding.amax,
             rounding.back);
    } else {
      launch({.num_blocks = blocks_for(count / bytes_at_once, block_threads),
              .num_threads = block_threads,
              .stream = stream},
             round_kernel<D, format>, numbers<T>(x), rounding.out, count / bytes_at_once, rounding.amax, rounding.back);
    }
  }
}

void round_operand(const Rounding& rounding, OperandFormat format, int num_multiprocessors, cudaStream_t stream) {
  visit_numbers(rounding.x.dtype, [&]<class T>(T) {
    if (format == OperandFormat::float8_e5m2)
      round_operand<__NV_E5M2, T>(rounding, num_multiprocessors, stream);
    else
      round_operand<__NV_E4M3, T>(rounding, num_multiprocessors, stream);
  });
}

constexpr std::int64_t line_bytes = 256;
std::int64_t lines_of(const Tensor& x) { return (x.num_elements() + line_bytes - 1) / line_bytes * line_bytes; }

Scales* scales_of(const MatmulArgs& args) {
  return reinterpret_cast<Scales*>(args.scratch.data + lines_of(args.a) + lines_of(args.b));
}

}  // namespace

Float8Operands float8_operands(const MatmulArgs& args) {
  const Scales* const scales = scales_of(args);
  return {.a = args.scratch.data,
          .b = args.scratch.data + lines_of(args.a),
          .back_a = &scales->back[0],
          .back_b = &scales->back[1]};
}

void round_operands(const MatmulArgs& args, int num_multiprocessors, cudaStream_t stream) {
  Scales* const scales = scales_of(args);
  const Float8Operands out = float8_operands(args);
  check(cudaMemsetAsync(scales, 0, sizeof *scales, stream), "zeros");
  round_operand({args.a, args.transpose_a, reinterpret_cast<unsigned char*>(out.a), &scales->amax[0], &scales->back[0]},
                args.a_format, num_multiprocessors, stream);
  round_operand(
      {args.b, !args.transpose_b, reinterpret_cast<unsigned char*>(out.b), &scales->amax[1], &scales->back[1]},
      args.b_format, num_multiprocessors, stream);
}

}  // namespace echelon::cuda
