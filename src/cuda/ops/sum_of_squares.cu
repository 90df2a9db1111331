// The squares of many gradients, added in one order: each block leaves a sum, and the last block adds these.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/device/tickets.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/segments.h"
#include "ops/gpu/joined_operations.h"

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, packs_in_flight = 4, max_blocks = 1024;

template <class T>
struct Stretch {
  const T* x;
  std::int64_t count;
};

template <class T>
using Stretches = Segments<Stretch<T>, most_segments<SumOfSquaresArgs>>;

template <class T>
__global__ void __launch_bounds__(block_threads)
    squares_kernel(Stretches<T> stretches, double* sums, double* total, unsigned* ticket) {
  constexpr int width = pack_size<T>;
  const int block = static_cast<int>(blockIdx.x), i_stretch = stretches.of_block(block),
            first_block = stretches.first_block[i_stretch];
  const T* const x = stretches.at[i_stretch].x;
  const std::int64_t count = stretches.at[i_stretch].count, num_packs = (count + width - 1) / width,
                     num_threads = std::int64_t{stretches.first_block[i_stretch + 1] - first_block} * block_threads;
  double sum = 0;
  for (std::int64_t pack = std::int64_t{block - first_block} * block_threads + threadIdx.x; pack < num_packs;
       pack += num_threads * packs_in_flight) {
    Pack<T, width> x_k[packs_in_flight];
#pragma unroll
    for (int k = 0; k < packs_in_flight; ++k)
      x_k[k] = load_pack<width>(x + (pack + k * num_threads) * width, count - (pack + k * num_threads) * width);
#pragma unroll
    for (int k = 0; k < packs_in_flight; ++k)
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const double x_i = static_cast<double>(widen(x_k[k].at[i]));
        sum += x_i * x_i;
      }
  }
  __shared__ double scratch[block_threads / warp_size];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!is_last_block(ticket, gridDim.x)) return;
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += block_threads) sum += load_of_others(sums + i);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *total += sum;
}

}  // namespace

void CudaOps::compute(const SumOfSquaresArgs& args) { compute_joined(std::vector{args}); }

// Each stretch has blocks in proportion to its length.
void CudaOps::compute_joined(const std::vector<SumOfSquaresArgs>& held) {
  std::int64_t num_elements = 0;
  for (const SumOfSquaresArgs& args : held) num_elements += args.x.num_elements();
  auto* const total = numbers<double>(held.front().sum);
  visit_numbers(held.front().x.dtype, [&]<class T>(T) {
    constexpr std::int64_t block_elements = std::int64_t{block_threads} * packs_in_flight * pack_size<T>;
    const std::int64_t elements = std::max(block_elements, blocks_for(num_elements, max_blocks));
    Stretches<on_device<T>> stretches;
    for (const SumOfSquaresArgs& args : held)
      stretches.add({numbers<T>(args.x), args.x.num_elements()}, blocks_for(args.x.num_elements(), elements));
    launch({.num_blocks = stretches.num_blocks(), .num_threads = block_threads, .stream = stream()},
           squares_kernel<on_device<T>>, stretches, workspace_.as<double>(stretches.num_blocks()), total,
           workspace_.tickets());
  });
}

}  // namespace echelon::cuda
