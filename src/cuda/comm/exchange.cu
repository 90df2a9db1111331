#include "cuda/comm/exchange.h"

#include "cuda/device/launch.h"
#include "cuda/device/packs.h"

#include <cuda_fp16.h>

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;
constexpr int blocks_per_multiprocessor = 8;

__device__ __forceinline__ std::int64_t first_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t num_threads() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

// Unit: what one thread copies at a time.
template <class Unit>
__global__ void copy_kernel(const Addresses addresses, const Copies copies) {
  const int source = static_cast<int>(blockIdx.y);
  const std::byte* const in = addresses.in[source];
  const std::int64_t offset = source * copies.out_stride,
                     count = copies.num_bytes / static_cast<std::int64_t>(sizeof(Unit));
  for (std::int64_t i = first_of_thread(); i < count; i += num_threads()) {
    Unit unit = {};
    for (int target = 0; target < copies.num_targets; ++target) {
      const Unit* const from = reinterpret_cast<const Unit*>(in + target * copies.in_stride) + i;
      Unit* const to = reinterpret_cast<Unit*>(addresses.out[target] + offset) + i;
      if (target == 0 || copies.in_stride != 0) unit = *from;
      if (to != from) *to = unit;
    }
  }
}

// Sums as in comm.h: narrow dtypes are summed in float32 and rounded once.
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ double widened(double x) { return x; }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widened(__half x) { return __half2float(x); }
__device__ __forceinline__ std::int32_t widened(std::int32_t x) { return x; }
__device__ __forceinline__ void round_to(float& out, float x) { out = x; }
__device__ __forceinline__ void round_to(double& out, double x) { out = x; }
__device__ __forceinline__ void round_to(__nv_bfloat16& out, float x) { out = __float2bfloat16_rn(x); }
__device__ __forceinline__ void round_to(__half& out, float x) { out = __float2half_rn(x); }
__device__ __forceinline__ void round_to(std::int32_t& out, std::int32_t x) { out = x; }

template <Combination::Operation operation, class A>
__device__ __forceinline__ A combined(A a, A b) {
  if constexpr (operation == Combination::Operation::sum)
    return a + b;
  else
    return a != a || a >= b ? a : b;
}

// Every thread combines `width` neighbouring elements of all sources.
template <class T, int width, Combination::Operation operation>
__global__ void combine_kernel(const Addresses addresses, const Combination combination) {
  using A = decltype(widened(T()));
  const std::int64_t part = blockIdx.y, first = part * combination.num_elements,
                     count = combination.num_elements / width;
  for (std::int64_t i = first_of_thread(); i < count; i += num_threads()) {
    A sum[width] = {};
    for (int source = 0; source < combination.num_sources; ++source) {
      const Pack<T, width> x = load_pack<width>(reinterpret_cast<const T*>(addresses.in[source]) + first + i * width);
#pragma unroll
      for (int k = 0; k < width; ++k)
        sum[k] = source == 0 ? widened(x.at[k]) : combined<operation>(sum[k], widened(x.at[k]));
    }
    Pack<T, width> result;
#pragma unroll
    for (int k = 0; k < width; ++k) round_to(result.at[k], sum[k]);
    if (!combination.goes_to_all) {
      store_pack(reinterpret_cast<T*>(addresses.out[part]) + i * width, result);
      continue;
    }
    for (int target = 0; target < combination.num_sources; ++target)
      store_pack(reinterpret_cast<T*>(addresses.out[target]) + i * width, result);
  }
}

Launch over(std::int64_t count, int num_rows, Device& device, Stream& stream) {
  const std::int64_t most =
      std::max<std::int64_t>(1, device.num_multiprocessors() * blocks_per_multiprocessor / num_rows);
  return {.num_blocks = std::min(blocks_for(count, block_threads), most),
          .num_threads = block_threads,
          .num_blocks_y = num_rows,
          .stream = stream.get()};
}

bool is_multiple(const void* address, std::int64_t num_bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::size_t>(num_bytes) == 0;
}

bool all_are_multiples(const Copies& copies, const Addresses& addresses, std::int64_t num_bytes) {
  bool are =
      copies.num_bytes % num_bytes == 0 && copies.in_stride % num_bytes == 0 && copies.out_stride % num_bytes == 0;
  for (int i = 0; i < copies.num_sources; ++i) are = are && is_multiple(addresses.in[i], num_bytes);
  for (int i = 0; i < copies.num_targets; ++i) are = are && is_multiple(addresses.out[i], num_bytes);
  return are;
}

bool all_are_multiples_of_packs(const Combination& combination, const Addresses& addresses) {
  bool are = combination.num_elements * size_of(combination.dtype) % 16 == 0;
  for (int i = 0; i < combination.num_sources; ++i)
    are = are && is_multiple(addresses.in[i], 16) && is_multiple(addresses.out[i], 16);
  return are;
}

template <class Unit>
void launch_copies(const Copies& copies, const Addresses& addresses, Device& device, Stream& stream) {
  const std::int64_t count = copies.num_bytes / static_cast<std::int64_t>(sizeof(Unit));
  launch(over(count, copies.num_sources, device, stream), copy_kernel<Unit>, addresses, copies);
}

template <class T, int width>
void launch_combination(const Combination& combination, const Addresses& addresses, Device& device, Stream& stream) {
  const Launch how = over(combination.num_elements / width, combination.num_parts, device, stream);
  switch (combination.operation) {
    case Combination::Operation::sum:
      return launch(how, combine_kernel<T, width, Combination::Operation::sum>, addresses, combination);
    case Combination::Operation::max:
      return launch(how, combine_kernel<T, width, Combination::Operation::max>, addresses, combination);
  }
}

template <class T>
void launch_combination(const Combination& combination, const Addresses& addresses, Device& device, Stream& stream) {
  if (all_are_multiples_of_packs(combination, addresses))
    return launch_combination<T, pack_size<T>>(combination, addresses, device, stream);
  launch_combination<T, 1>(combination, addresses, device, stream);
}

}  // namespace

void enqueue(const Copies& copies, const Addresses& addresses, Device& device, Stream& stream) {
  if (all_are_multiples(copies, addresses, 16)) return launch_copies<uint4>(copies, addresses, device, stream);
  if (all_are_multiples(copies, addresses, 4)) return launch_copies<unsigned>(copies, addresses, device, stream);
  launch_copies<unsigned short>(copies, addresses, device, stream);
}

void enqueue(const Combination& combination, const Addresses& addresses, Device& device, Stream& stream) {
  switch (combination.dtype) {
    case DType::float32: return launch_combination<float>(combination, addresses, device, stream);
    case DType::float64: return launch_combination<double>(combination, addresses, device, stream);
    case DType::bfloat16: return launch_combination<__nv_bfloat16>(combination, addresses, device, stream);
    case DType::float16: return launch_combination<__half>(combination, addresses, device, stream);
    case DType::int32: return launch_combination<std::int32_t>(combination, addresses, device, stream);
    case DType::int16: no_kernel_for(combination.dtype);
  }
}

}  // namespace echelon::cuda
