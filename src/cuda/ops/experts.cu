// Mixtures of experts: the slots of rows, the permutation and its inverse. A counting sort without atomics computes the
// slots, in three kernels:
//     1. a warp for a chunk of the experts counts how often each occurs there;
//     2. one block makes of these counts where each chunk's rows of each expert start, and the offsets;
//     3. a warp for a chunk gives its rows their slots, 32 at a time, in their order.
// Rows are moved by a warp for a token, which reads or writes the token's row once for all its experts; both are bound
// by memory.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;
constexpr std::int64_t most_chunks = 256, smallest_chunk = 512;
constexpr int slots_in_flight = 4, counts_in_flight = 8;

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % warp_size; }

/// What a token's rows are sorted by. A chunk belongs to a block of one warp.
struct Choices {
  const std::int32_t* experts;
  std::int64_t R, chunk_size, first_expert;
  int E;

  /// f(i, expert of choice i or -1 if it is none of these, lanes with the same one), for 32 choices of this block's
  /// chunk at a time; by all lanes.
  template <class F>
  __device__ __forceinline__ void for_chunk(F&& f) const {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * chunk_size, end = min(first + chunk_size, R);
    for (std::int64_t start = first; start < end; start += warp_size) {
      const std::int64_t i = start + lane_of_thread(), e = i < end ? experts[i] - first_expert : -1;
      const int expert = e >= 0 && e < E ? static_cast<int>(e) : -1;
      f(i, expert, __match_any_sync(whole_warp, expert));
      __syncwarp();
    }
  }
};

/// Of the lanes with the same expert the first, which counts for all.
__device__ __forceinline__ bool is_first(unsigned same) { return (same & ((1U << lane_of_thread()) - 1)) == 0; }

__global__ void __launch_bounds__(warp_size) count_kernel(Choices choices, std::int32_t* __restrict__ counts) {
  auto* const seen = dynamic_shared<std::int32_t>();
  for (int e = lane_of_thread(); e < choices.E; e += warp_size) seen[e] = 0;
  __syncwarp();
  choices.for_chunk([&](std::int64_t, int expert, unsigned same) {
    if (expert >= 0 && is_first(same)) seen[expert] += __popc(same);
  });
  for (int e = lane_of_thread(); e < choices.E; e += warp_size)
    counts[static_cast<std::int64_t>(blockIdx.x) * choices.E + e] = seen[e];
}

/// offsets[e + 1] = sum of those up to e; by a whole block.
__device__ __forceinline__ void accumulate_offsets(std::int32_t* offsets, int E) {
  __syncthreads();
  if (threadIdx.x >= warp_size) return;
  const int lane = lane_of_thread();
  std::int32_t before = 0;
  for (int start = 0; start < E; start += warp_size) {
    std::int32_t sum = start + lane < E ? offsets[start + lane + 1] : 0;
    for (int distance = 1; distance < warp_size; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(whole_warp, sum, static_cast<unsigned>(distance));
      if (lane >= distance) sum += other;
    }
    if (start + lane < E) offsets[start + lane + 1] = before + sum;
    before += __shfl_sync(whole_warp, sum, warp_size - 1);
  }
  if (lane == 0) offsets[0] = 0;
}

/// counts[chunk][e] becomes the number of rows of expert e in the chunks before.
__global__ void __launch_bounds__(block_threads)
    offsets_kernel(std::int32_t* counts, int num_chunks, int E, std::int32_t* offsets) {
  for (int e = static_cast<int>(threadIdx.x); e < E; e += block_threads) {
    std::int32_t before = 0;
    for (int first = 0; first < num_chunks; first += counts_in_flight) {
      std::int32_t count[counts_in_flight];
#pragma unroll
      for (int i = 0; i < counts_in_flight; ++i)
        count[i] = first + i < num_chunks ? counts[static_cast<std::int64_t>(first + i) * E + e] : 0;
#pragma unroll
      for (int i = 0; i < counts_in_flight; ++i) {
        if (first + i < num_chunks) counts[static_cast<std::int64_t>(first + i) * E + e] = before;
        before += count[i];
      }
    }
    offsets[e + 1] = before;
  }
  accumulate_offsets(offsets, E);
}

__global__ void __launch_bounds__(warp_size)
    slots_kernel(Choices choices, const std::int32_t* __restrict__ counts, const std::int32_t* __restrict__ offsets,
                 std::int32_t* __restrict__ slots) {
  auto* const next = dynamic_shared<std::int32_t>();
  for (int e = lane_of_thread(); e < choices.E; e += warp_size)
    next[e] = offsets[e] + counts[static_cast<std::int64_t>(blockIdx.x) * choices.E + e];
  __syncwarp();
  choices.for_chunk([&](std::int64_t i, int expert, unsigned same) {
    const std::int32_t first = expert >= 0 ? next[expert] : 0;
    __syncwarp();
    if (expert >= 0 && is_first(same)) next[expert] = first + __popc(same);
    const int before = __popc(same & ((1U << lane_of_thread()) - 1));
    if (i < choices.R && i < (static_cast<std::int64_t>(blockIdx.x) + 1) * choices.chunk_size)
      slots[i] = expert >= 0 ? first + before : -1;
  });
}

/// Rows that have come from P ranks, and the round of them from first_row on.
struct Arrivals {
  const std::int32_t* of_ranks;
  std::int64_t columns, first_expert, first_row, Q;
  int P, E;

  __device__ __forceinline__ const std::int32_t* of_rank(int p) const { return of_ranks + p * columns + first_expert; }
  __device__ __forceinline__ std::int64_t rows_of_rank(int p) const { return of_rank(p)[E] - of_rank(p)[0]; }
  /// Where in the round the rows of rank p for expert e are; those of the ranks before are `before` rows.
  struct Rows {
    std::int64_t first, end;
  };
  __device__ __forceinline__ Rows rows(int p, int e, std::int64_t before) const {
    const std::int32_t* own = of_rank(p);
    const std::int64_t start = before - first_row;
    return {min(max(start + own[e] - own[0], std::int64_t{0}), Q),
            min(max(start + own[e + 1] - own[0], std::int64_t{0}), Q)};
  }
};

__global__ void __launch_bounds__(block_threads) arrived_offsets_kernel(Arrivals arrivals, std::int32_t* offsets) {
  for (int e = static_cast<int>(threadIdx.x); e < arrivals.E; e += block_threads) {
    std::int64_t count = 0, before = 0;
    for (int p = 0; p < arrivals.P; ++p) {
      const auto [first, end] = arrivals.rows(p, e, before);
      count += end - first;
      before += arrivals.rows_of_rank(p);
    }
    offsets[e + 1] = static_cast<std::int32_t>(count);
  }
  accumulate_offsets(offsets, arrivals.E);
}

/// A thread finds a row's rank, its expert there, and how many rows of the expert come before.
__global__ void __launch_bounds__(block_threads)
    arrived_slots_kernel(Arrivals arrivals, const std::int32_t* __restrict__ offsets,
                         std::int32_t* __restrict__ slots) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x,
                     wanted = row + arrivals.first_row;
  if (row >= arrivals.Q) return;
  std::int64_t before = 0;
  int p = 0;
  while (p < arrivals.P && before + arrivals.rows_of_rank(p) <= wanted) before += arrivals.rows_of_rank(p++);
  if (p == arrivals.P) {
    slots[row] = -1;
    return;
  }
  const std::int32_t* own = arrivals.of_rank(p);
  int e = 0, after = arrivals.E;  // the expert is one of e, ..., after - 1
  while (after - e > 1) {
    const int middle = (e + after) / 2;
    (before + own[middle] - own[0] <= wanted ? e : after) = middle;
  }
  std::int64_t slot = offsets[e] + row - arrivals.rows(p, e, before).first, before_other = 0;
  for (int other = 0; other < p; ++other) {
    const auto [first, end] = arrivals.rows(other, e, before_other);
    slot += end - first;
    before_other += arrivals.rows_of_rank(other);
  }
  slots[row] = static_cast<std::int32_t>(slot);
}

/// The token of a warp, and its lane's first column.
template <int width>
struct TokenOfWarp {
  std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * block_warps + threadIdx.x / warp_size;
  std::int64_t column = static_cast<std::int64_t>(lane_of_thread()) * width;
  static constexpr std::int64_t stride = warp_size * width;
};

struct TokenSizes {
  std::int64_t N, D;
  int k;
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    permute_kernel(const T* __restrict__ x, const std::int32_t* __restrict__ slots, T* __restrict__ y,
                   TokenSizes sizes) {
  const TokenOfWarp<width> at;
  if (at.n >= sizes.N) return;
#pragma unroll 2
  for (std::int64_t column = at.column; column < sizes.D; column += at.stride) {
    const PackedWords<T, width> words = load_words<width>(x + at.n * sizes.D + column);
    for (int j = 0; j < sizes.k; ++j)
      if (const std::int64_t slot = slots[at.n * sizes.k + j]; slot >= 0)
        store_words(y + slot * sizes.D + column, words);
  }
}

/// Slots j, j + 1, ... of a token; -1 where there are none.
struct SomeSlots {
  std::int64_t at[slots_in_flight];

  __device__ __forceinline__ SomeSlots(const std::int32_t* of_token, int j, int k) {
#pragma unroll
    for (int i = 0; i < slots_in_flight; ++i) at[i] = j + i < k ? of_token[j + i] : -1;
  }
  template <int width, class T>
  __device__ __forceinline__ void load(PackedWords<T, width> (&words)[slots_in_flight], const T* y, std::int64_t D,
                                       std::int64_t column) const {
#pragma unroll
    for (int i = 0; i < slots_in_flight; ++i)
      if (at[i] >= 0) words[i] = load_words<width>(y + at[i] * D + column);
  }
};

/// Without weights where `weights` is null.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    combine_kernel(const T* __restrict__ y, const std::int32_t* __restrict__ slots, const Wide<T>* __restrict__ weights,
                   T* __restrict__ out, TokenSizes sizes) {
  const TokenOfWarp<width> at;
  if (at.n >= sizes.N) return;
  const std::int64_t first = at.n * sizes.k;
  for (std::int64_t column = at.column; column < sizes.D; column += at.stride) {
    Pack<Wide<T>, width> sum = {};
    for (int j = 0; j < sizes.k; j += slots_in_flight) {
      const SomeSlots some(slots + first, j, sizes.k);
      PackedWords<T, width> words[slots_in_flight];
      some.load<width>(words, y, sizes.D, column);
#pragma unroll
      for (int i = 0; i < slots_in_flight; ++i) {
        if (some.at[i] < 0) continue;
        const Wide<T> weight = weights == nullptr ? Wide<T>(1) : weights[first + j + i];
        const Pack<T, width> numbers = unpack(words[i]);
#pragma unroll
        for (int c = 0; c < width; ++c) sum.at[c] += weight * widen(numbers.at[c]);
      }
    }
    store_pack(out + at.n * sizes.D + column, narrow<T>(sum));
  }
}

/// dy may be y: a lane has read a value before it writes there, and no other lane does.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    combine_backward_kernel(const T* __restrict__ dout, const T* y, const std::int32_t* __restrict__ slots,
                            const Wide<T>* __restrict__ weights, T* dy, Wide<T>* __restrict__ dweights,
                            TokenSizes sizes) {
  const TokenOfWarp<width> at;
  if (at.n >= sizes.N) return;
  for (int j = 0; j < sizes.k; j += slots_in_flight) {
    const std::int64_t first = at.n * sizes.k + j;
    const SomeSlots some(slots + at.n * sizes.k, j, sizes.k);
    Wide<T> weight[slots_in_flight], product[slots_in_flight] = {};
#pragma unroll
    for (int i = 0; i < slots_in_flight; ++i) weight[i] = some.at[i] >= 0 ? weights[first + i] : Wide<T>(0);
    for (std::int64_t column = at.column; column < sizes.D; column += at.stride) {
      const Pack<T, width> of_out = load_pack<width>(dout + at.n * sizes.D + column);
      PackedWords<T, width> words[slots_in_flight];
      some.load<width>(words, y, sizes.D, column);
#pragma unroll
      for (int i = 0; i < slots_in_flight; ++i) {
        if (some.at[i] < 0) continue;
        const Pack<T, width> numbers = unpack(words[i]);
        Pack<T, width> gradient;
#pragma unroll
        for (int c = 0; c < width; ++c) {
          product[i] += widen(of_out.at[c]) * widen(numbers.at[c]);
          gradient.at[c] = narrow<T>(weight[i] * widen(of_out.at[c]));
        }
        store_pack(dy + some.at[i] * sizes.D + column, gradient);
      }
    }
#pragma unroll
    for (int i = 0; i < slots_in_flight; ++i) {
      const Wide<T> sum = warp_sum(product[i]);
      if (lane_of_thread() == 0 && j + i < sizes.k) dweights[first + i] = sum;
    }
  }
}

[[nodiscard]] Launch warp_for_token(std::int64_t N, cudaStream_t stream) {
  return {.num_blocks = blocks_for(N, block_warps), .num_threads = block_threads, .stream = stream};
}

[[nodiscard]] TokenSizes sizes_of(const Tensor& slots, const Tensor& of_tokens) {
  return {slots.size(0), of_tokens.size(1), static_cast<int>(slots.size(1))};
}

}  // namespace

void CudaOps::compute(const ExpertSlotsArgs& args) {
  const std::int64_t R = args.experts.num_elements(), E = args.offsets.size(0) - 1;
  const std::int64_t chunk_size =
      blocks_for(std::max(smallest_chunk, blocks_for(R, most_chunks)), warp_size) * warp_size;
  const std::int64_t num_chunks = blocks_for(R, chunk_size);
  const Choices choices = {numbers<std::int32_t>(args.experts), R, chunk_size, args.first_expert, static_cast<int>(E)};
  auto* const counts = workspace_.as<std::int32_t>(num_chunks * E);
  const Launch chunks = {.num_blocks = num_chunks,
                         .num_threads = warp_size,
                         .shared_bytes = static_cast<std::size_t>(E) * sizeof(std::int32_t),
                         .stream = stream()};
  launch(chunks, count_kernel, choices, counts);
  launch({.num_threads = block_threads, .stream = stream()}, offsets_kernel, counts, static_cast<int>(num_chunks),
         static_cast<int>(E), numbers<std::int32_t>(args.offsets));
  launch(chunks, slots_kernel, choices, counts, numbers<std::int32_t>(args.offsets), numbers<std::int32_t>(args.slots));
}

void CudaOps::compute(const ArrivedSlotsArgs& args) {
  const Arrivals arrivals = {.of_ranks = numbers<std::int32_t>(args.of_ranks),
                             .columns = args.of_ranks.size(1),
                             .first_expert = args.first_expert,
                             .first_row = args.first_row,
                             .Q = args.slots.num_elements(),
                             .P = static_cast<int>(args.of_ranks.size(0)),
                             .E = static_cast<int>(args.offsets.size(0) - 1)};
  auto* const offsets = numbers<std::int32_t>(args.offsets);
  launch({.num_threads = block_threads, .stream = stream()}, arrived_offsets_kernel, arrivals, offsets);
  launch({.num_blocks = blocks_for(arrivals.Q, block_threads), .num_threads = block_threads, .stream = stream()},
         arrived_slots_kernel, arrivals, offsets, numbers<std::int32_t>(args.slots));
}

void CudaOps::compute(const PermuteToExpertsArgs& args) {
  const TokenSizes sizes = sizes_of(args.slots, args.x);
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    visit_row_width<T>(sizes.D, [&]<int width>(std::integral_constant<int, width>) {
      launch(warp_for_token(sizes.N, stream()), permute_kernel<on_device<T>, width>, numbers<T>(args.x),
             numbers<std::int32_t>(args.slots), numbers<T>(args.y), sizes);
    });
  });
}

void CudaOps::compute(const CombineExpertsArgs& args) {
  const TokenSizes sizes = sizes_of(args.slots, args.out);
  visit_numbers(args.y.dtype, [&]<class T>(T) {
    using W = Wide<on_device<T>>;
    visit_row_width<T>(sizes.D, [&]<int width>(std::integral_constant<int, width>) {
      launch(warp_for_token(sizes.N, stream()), combine_kernel<on_device<T>, width>, numbers<T>(args.y),
             numbers<std::int32_t>(args.slots), args.weights.exists() ? numbers<W>(args.weights) : nullptr,
             numbers<T>(args.out), sizes);
    });
  });
}

void CudaOps::compute(const CombineExpertsBackwardArgs& args) {
  const TokenSizes sizes = sizes_of(args.slots, args.dout);
  visit_numbers(args.y.dtype, [&]<class T>(T) {
    using W = Wide<on_device<T>>;
    visit_row_width<T>(sizes.D, [&]<int width>(std::integral_constant<int, width>) {
      launch(warp_for_token(sizes.N, stream()), combine_backward_kernel<on_device<T>, width>, numbers<T>(args.dout),
             numbers<T>(args.y), numbers<std::int32_t>(args.slots), numbers<W>(args.weights), numbers<T>(args.dy),
             numbers<W>(args.dweights), sizes);
    });
  });
}

}  // namespace echelon::cuda
