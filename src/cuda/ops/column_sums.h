// Sums over the rows of a matrix, one or several for each column: gradients of biases and of norms' weights. In two
// stages and without atomics, so that values are added in the same order in every run:
//     1. a block takes some columns and a chunk of rows, which its warps take alternately; then it adds the sums of its
//        warps
//     2. out[d] += the chunks' sums of column d.
// Every number is read once; the first stage writes one of `rows of a chunk`. For .cu files alone.
#pragma once

#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/device/workspace.h"

#include <algorithm>

namespace echelon::cuda {

/// What the first stage writes to the workspace: [num_chunks][num_sums][D].
template <class A, int num_sums>
struct PartialSums {
  A* numbers = nullptr;
  std::int64_t num_chunks = 0, D = 0;
};

/// The tensors that sums are added to.
template <class G, int num_sums>
struct Totals {
  G* at[num_sums];
};

constexpr int chunks_at_once = 16;

template <class A, class G, int num_sums>
__global__ void __launch_bounds__(warp_size* chunks_at_once)
    add_partial_sums_kernel(PartialSums<A, num_sums> of, Totals<G, num_sums> totals) {
  __shared__ A sums[chunks_at_once][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, first_chunk = static_cast<int>(threadIdx.x) / warp_size;
  const int num_warps = static_cast<int>(blockDim.x) / warp_size;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  A sum = 0;
  if (column < of.D) {
    const A* numbers = of.numbers + blockIdx.y * of.D + column;
#pragma unroll 4
    for (std::int64_t chunk = first_chunk; chunk < of.num_chunks; chunk += num_warps)
      sum += numbers[chunk * num_sums * of.D];
  }
  sums[first_chunk][lane] = sum;
  __syncthreads();
  if (first_chunk != 0 || column >= of.D) return;
  for (int warp = 1; warp < num_warps; ++warp) sum += sums[warp][lane];
  G* out = totals.at[0];
#pragma unroll
  for (int i = 1; i < num_sums; ++i)
    if (static_cast<int>(blockIdx.y) == i) out = totals.at[i];
  out[column] = narrow<G>(widen(out[column]) + sum);
}

/// The second stage: totals[i][d] += sums over the chunks.
template <class A, class G, int num_sums>
void add_partial_sums(const PartialSums<A, num_sums>& of, const Totals<G, num_sums>& totals, cudaStream_t stream) {
  launch({.num_blocks = of.num_chunks == 0 ? 0 : blocks_for(of.D, warp_size),
          .num_threads = warp_size * static_cast<int>(std::min<std::int64_t>(of.num_chunks, chunks_at_once)),
          .num_blocks_y = num_sums,
          .stream = stream},
         add_partial_sums_kernel<A, G, num_sums>, of, totals);
}

constexpr int column_sums_threads = 256;

/// A Summand says what is summed over the rows, for `width` neighbouring columns:
///     using Number; static constexpr int width, num_sums; struct Loaded;
///     Loaded load(row, column) const;
///     void add(const Loaded&, row, column, Wide<Number> (&sums)[num_sums][width]) const;
///     which may also store what it computes, each number once
template <class Summand, class A = Wide<typename Summand::Number>>
__global__ void __launch_bounds__(column_sums_threads)
    column_sums_kernel(Summand summand, std::int64_t num_rows, std::int64_t rows_per_chunk,
                       PartialSums<A, Summand::num_sums> out) {
  constexpr int width = Summand::width, num_sums = Summand::num_sums, num_warps = column_sums_threads / warp_size,
                in_flight = 4;
  constexpr int block_columns = warp_size * width;
  __shared__ A of_warps[num_warps][block_columns];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns,
                     column = first_column + lane * width;
  const std::int64_t first = blockIdx.y * rows_per_chunk, last = min(num_rows, first + rows_per_chunk);
  A sums[num_sums][width] = {};
  if (column < out.D) {
    for (std::int64_t row = first + warp; row < last; row += in_flight * num_warps) {
      typename Summand::Loaded loaded[in_flight];
#pragma unroll
      for (int k = 0; k < in_flight; ++k)
        if (row + k * num_warps < last) loaded[k] = summand.load(row + k * num_warps, column);
#pragma unroll
      for (int k = 0; k < in_flight; ++k)
        if (row + k * num_warps < last) summand.add(loaded[k], row + k * num_warps, column, sums);
    }
  }
#pragma unroll
  for (int i = 0; i < num_sums; ++i) {
    if (i > 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < width; ++j) of_warps[warp][lane * width + j] = sums[i][j];
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < block_columns && first_column + j < out.D;
         j += column_sums_threads) {
      A sum = 0;
#pragma unroll
      for (int other = 0; other < num_warps; ++other) sum += of_warps[other][j];
      out.numbers[(static_cast<std::int64_t>(blockIdx.y) * num_sums + i) * out.D + first_column + j] = sum;
    }
  }
}

/// totals[i][d] += sums over num_rows rows of D columns, which is a multiple of the Summand's width.
template <class Summand, class G>
void add_column_sums(const Summand& summand, std::int64_t num_rows, std::int64_t D,
                     const Totals<G, Summand::num_sums>& totals, const ComputeLane& lane) {
  using A = Wide<typename Summand::Number>;
  constexpr int num_sums = Summand::num_sums;
  if (num_rows == 0 || D == 0) return;
  // Enough to hide memory's latency; few enough that partial sums are little to move.
  constexpr std::int64_t blocks_per_multiprocessor = 4, fewest_rows = 64;
  const std::int64_t column_blocks = blocks_for(D, warp_size * Summand::width);
  const std::int64_t wanted = blocks_for(lane.num_multiprocessors * blocks_per_multiprocessor, column_blocks);
  // The second size of a grid ends there.
  const std::int64_t most = std::clamp<std::int64_t>(Workspace::capacity<A>() / (num_sums * D), 1, 65535);
  const std::int64_t rows_per_chunk = std::max(fewest_rows, blocks_for(num_rows, std::min(wanted, most)));
  const std::int64_t num_chunks = blocks_for(num_rows, rows_per_chunk);
  const PartialSums<A, num_sums> partial = {lane.workspace.as<A>(num_chunks * num_sums * D), num_chunks, D};
  launch({.num_blocks = column_blocks,
          .num_threads = column_sums_threads,
          .num_blocks_y = num_chunks,
          .stream = lane.stream},
         column_sums_kernel<Summand>, summand, num_rows, rows_per_chunk, partial);
  add_partial_sums(partial, totals, lane.stream);
}

}  // namespace echelon::cuda
