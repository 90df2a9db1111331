// The capacity of experts, by a warp for a row: it counts the rows of the same expert and sequence that come before.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;

/// weights is null where the order is by places alone.
template <class W>
struct LimitedRows {
  const std::int32_t *experts, *places;
  const W* weights;
  std::int64_t num_rows, first_row, num_own, tokens_per_sequence, capacity;
  int k;

  [[nodiscard]] __device__ __forceinline__ std::int64_t sequence_of(std::int64_t row) const {
    return (places[row / k] - 1) / tokens_per_sequence;
  }
  [[nodiscard]] __device__ __forceinline__ bool is_before(std::int64_t a, std::int64_t b) const {
    if (weights != nullptr) {
      const W of_a = weights[a], of_b = weights[b];
      const bool a_is_nan = of_a != of_a, b_is_nan = of_b != of_b;
      if (a_is_nan != b_is_nan) return b_is_nan;
      if (!a_is_nan && of_a != of_b) return of_a > of_b;
    }
    return places[a / k] < places[b / k];
  }
};

template <class W>
__global__ void __launch_bounds__(block_threads) limit_kernel(LimitedRows<W> of, std::int32_t* __restrict__ kept) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t own = std::int64_t{blockIdx.x} * block_warps + static_cast<int>(threadIdx.x) / warp_size;
  if (own >= of.num_own) return;
  const std::int64_t row = of.first_row + own;
  const std::int32_t expert = of.experts[row];
  std::int64_t before = 0;
  if (expert >= 0) {
    const std::int64_t sequence = of.sequence_of(row);
    for (std::int64_t other = lane; other < of.num_rows; other += warp_size)
      if (of.experts[other] == expert && of.sequence_of(other) == sequence && of.is_before(other, row)) ++before;
    before = warp_sum(before);
  }
  if (lane == 0) kept[own] = before < of.capacity ? expert : -1;
}

}  // namespace

void CudaOps::compute(const LimitExpertsArgs& args) {
  const std::int64_t num_own = args.kept.num_elements(), k = args.of_sequences.size(1);
  if (num_own == 0) return;
  const auto of_type = [&]<class W>(W) {
    const LimitedRows<W> of = {numbers<std::int32_t>(args.of_sequences),
                               numbers<std::int32_t>(args.places),
                               args.weights.exists() ? numbers<W>(args.weights) : nullptr,
                               args.of_sequences.num_elements(),
                               args.first_token * k,
                               num_own,
                               args.tokens_per_sequence,
                               args.capacity,
                               static_cast<int>(k)};
    launch({.num_blocks = blocks_for(num_own, block_warps), .num_threads = block_threads, .stream = stream()},
           limit_kernel<W>, of, numbers<std::int32_t>(args.kept));
  };
  args.weights.exists() && args.weights.dtype == DType::float64 ? of_type(double{}) : of_type(float{});
}

}  // namespace echelon::cuda
