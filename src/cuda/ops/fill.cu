// Constants, into many tensors at once: a thread stores 16 bytes twice.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/segments.h"
#include "ops/gpu/joined_operations.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, packs_of_thread = 2;

template <class T>
struct FilledSegment {
  T* out;
  std::int64_t count;
};
template <class T>
using FilledSegments = Segments<FilledSegment<T>, most_segments<FillArgs>>;

template <class T>
__global__ void __launch_bounds__(block_threads) fill_kernel(FilledSegments<T> segments, T value) {
  constexpr int width = pack_size<T>;
  constexpr std::int64_t stride = std::int64_t{block_threads} * width;
  const int block = static_cast<int>(blockIdx.x), segment = segments.of_block(block);
  const FilledSegment<T>& of = segments.at[segment];
  const std::int64_t first = std::int64_t{block - segments.first_block[segment]} * stride * packs_of_thread +
                             static_cast<std::int64_t>(threadIdx.x) * width;
  Pack<T, width> values;
#pragma unroll
  for (int i = 0; i < width; ++i) values.at[i] = value;
#pragma unroll
  for (int k = 0; k < packs_of_thread; ++k)
    if (first + k * stride < of.count) store_pack(of.out + first + k * stride, values, of.count - first - k * stride);
}

}  // namespace

void CudaOps::compute(const FillArgs& args) { compute_joined(std::vector{args}); }

void CudaOps::compute_joined(const std::vector<FillArgs>& held) {
  const double value = held.front().value;
  const DType dtype = held.front().out.dtype;
  const auto fill_as = [&]<class T>(T, on_device<T> number) {
    FilledSegments<on_device<T>> segments;
    for (const FillArgs& args : held)
      segments.add({numbers<T>(args.out), args.out.num_elements()},
                   blocks_for(args.out.num_elements(), block_threads * pack_size<T> * packs_of_thread));
    launch({.num_blocks = segments.num_blocks(), .num_threads = block_threads, .stream = stream()},
           fill_kernel<on_device<T>>, segments, number);
  };
  if (dtype == DType::int32) return fill_as(std::int32_t{}, static_cast<std::int32_t>(value));
  if (dtype == DType::int16) return fill_as(std::int16_t{}, static_cast<std::int16_t>(value));
  visit_numbers(dtype, [&]<class T>(T t) { fill_as(t, on_device<T>(static_cast<Wide<on_device<T>>>(value))); });
}

}  // namespace echelon::cuda
