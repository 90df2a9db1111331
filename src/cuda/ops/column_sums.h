// Sums over the rows of a matrix, one or several for each column: gradients of biases and of norms' weights. In one
// launch, and in the same order in every run:
//     1. a block takes some columns and a chunk of rows, which its warps take alternately; then it adds the sums of its
//        warps
//     2. the last block of a column (cuda/device/tickets.h): out[d] += the chunks' sums of column d.
// Every number is read once; the first stage writes one of `rows of a chunk`. For .cu files alone.
#pragma once

#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/device/tickets.h"
#include "cuda/device/workspace.h"
#include "cuda/ops/amax.h"

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

/// How partial sums become totals.
template <class A, class G, int num_sums>
struct ColumnSums {
  PartialSums<A, num_sums> partial;
  Totals<G, num_sums> totals;
  unsigned* tickets = nullptr;
  unsigned chunks_of_set = 1;  // of add_chunks_of_blocks
};

template <class A, class G, int num_sums>
__device__ __forceinline__ void add_to_total(const Totals<G, num_sums>& totals, int which, std::int64_t column, A sum) {
  G* out = totals.at[0];
#pragma unroll
  for (int i = 1; i < num_sums; ++i)
    if (which == i) out = totals.at[i];
  out[column] = narrow<G>(widen(out[column]) + sum);
}

/// Totals of chunks that are whole rows of partial sums, one of each block of this kernel. The last block of a set adds
/// those of the set, and the last set's adds those of the sets: one block alone would take long.
template <class A, class G, int num_sums>
__device__ __forceinline__ void add_chunks_of_blocks(const ColumnSums<A, G, num_sums>& of) {
  const std::int64_t columns = num_sums * of.partial.D;
  const unsigned num_sets = (gridDim.x + of.chunks_of_set - 1) / of.chunks_of_set, set = blockIdx.x / of.chunks_of_set,
                 first = set * of.chunks_of_set, in_set = min(of.chunks_of_set, gridDim.x - first);
  const auto sum_of = [](const A* first_number, unsigned count, std::int64_t distance) {
    A sum = 0;
#pragma unroll 4
    for (unsigned i = 0; i < count; ++i) sum += load_of_others(first_number + i * distance);
    return sum;
  };
  A* const of_set = of.partial.numbers + first * columns;
  if (!is_last_block(of.tickets + 1 + set, in_set)) return;
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x)
    of_set[column] = sum_of(of_set + column, in_set, columns);
  if (!is_last_block(of.tickets, num_sets)) return;
  for (int which = 0; which < num_sums; ++which)
    for (std::int64_t column = threadIdx.x; column < of.partial.D; column += blockDim.x)
      add_to_total(of.totals, which, column,
                   sum_of(of.partial.numbers + which * of.partial.D + column, num_sets, of.chunks_of_set * columns));
}

constexpr int column_sums_threads = 256;

/// Of a summand without num_amaxes one that nothing reads.
template <class Summand>
constexpr int amaxes_of_summand = 1;
template <class Summand>
requires requires { Summand::num_amaxes; }
constexpr int amaxes_of_summand<Summand> = Summand::num_amaxes;

/// A Summand says what is summed over the rows, for `width` neighbouring columns:
///     using Number; static constexpr int width, num_sums; struct Loaded;
///     Loaded load(row, column) const;
///     void add(const Loaded&, row, column, Wide<Number> (&sums)[num_sums][width]) const;
///     which may also store what it computes, each number once; with num_amaxes, it has `amaxes` of what it stores, and
///     add() has an `unsigned (&largest)[num_amaxes]` more
template <class Summand, class G, class A = Wide<typename Summand::Number>>
__global__ void __launch_bounds__(column_sums_threads)
    column_sums_kernel(Summand summand, std::int64_t num_rows, std::int64_t rows_per_chunk,
                       ColumnSums<A, G, Summand::num_sums> of) {
  constexpr int width = Summand::width, num_sums = Summand::num_sums, num_warps = column_sums_threads / warp_size,
                in_flight = 4;
  constexpr int block_columns = warp_size * width;
  __shared__ A of_warps[num_warps][block_columns];
  const PartialSums<A, num_sums>& out = of.partial;
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns,
                     column = first_column + lane * width;
  const std::int64_t first = blockIdx.y * rows_per_chunk, last = min(num_rows, first + rows_per_chunk);
  const auto partial_of = [&](std::int64_t chunk, int which, std::int64_t of_column) {
    return out.numbers + (chunk * num_sums + which) * out.D + of_column;
  };
  A sums[num_sums][width] = {};
  constexpr bool measures = requires { Summand::num_amaxes; };
  unsigned largest[amaxes_of_summand<Summand>] = {};
  if (column < out.D) {
    for (std::int64_t row = first + warp; row < last; row += in_flight * num_warps) {
      typename Summand::Loaded loaded[in_flight];
#pragma unroll
      for (int k = 0; k < in_flight; ++k)
        if (row + k * num_warps < last) loaded[k] = summand.load(row + k * num_warps, column);
#pragma unroll
      for (int k = 0; k < in_flight; ++k)
        if (row + k * num_warps < last) {
          if constexpr (measures)
            summand.add(loaded[k], row + k * num_warps, column, sums, largest);
          else
            summand.add(loaded[k], row + k * num_warps, column, sums);
        }
    }
  }
  if constexpr (measures) leave_amaxes(summand.amaxes, largest, gridDim.x * gridDim.y);
  // store(column, sum over the warps) for the block's columns.
  const auto add_warps = [&](auto&& store) {
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < block_columns && first_column + j < out.D;
         j += column_sums_threads) {
      A sum = 0;
#pragma unroll
      for (int other = 0; other < num_warps; ++other) sum += of_warps[other][j];
      store(first_column + j, sum);
    }
    __syncthreads();
  };
#pragma unroll
  for (int i = 0; i < num_sums; ++i) {
#pragma unroll
    for (int j = 0; j < width; ++j) of_warps[warp][lane * width + j] = sums[i][j];
    add_warps([&](std::int64_t at, A sum) { *partial_of(blockIdx.y, i, at) = sum; });
  }

  if (gridDim.y > 1 && !is_last_block(of.tickets + blockIdx.x, gridDim.y)) return;
#pragma unroll
  for (int i = 0; i < num_sums; ++i) {
    A of_chunks[width] = {};
    for (std::int64_t chunk = warp; chunk < out.num_chunks; chunk += num_warps)
#pragma unroll
      for (int j = 0; j < width; ++j)
        if (const std::int64_t at = first_column + lane + j * warp_size; at < out.D)
          of_chunks[j] += load_of_others(partial_of(chunk, i, at));
#pragma unroll
    for (int j = 0; j < width; ++j) of_warps[warp][lane + j * warp_size] = of_chunks[j];
    add_warps([&](std::int64_t at, A sum) { add_to_total(of.totals, i, at, sum); });
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
  const std::int64_t of_memory = std::clamp<std::int64_t>(Workspace::capacity<A>() / (num_sums * D), 1, 65535);
  const std::int64_t most = column_blocks > Workspace::num_tickets ? 1 : of_memory;
  const std::int64_t rows_per_chunk = std::max(fewest_rows, blocks_for(num_rows, std::min(wanted, most)));
  const std::int64_t num_chunks = blocks_for(num_rows, rows_per_chunk);
  const PartialSums<A, num_sums> partial = {lane.workspace.as<A>(num_chunks * num_sums * D), num_chunks, D};
  launch({.num_blocks = column_blocks,
          .num_threads = column_sums_threads,
          .num_blocks_y = num_chunks,
          .stream = lane.stream},
         column_sums_kernel<Summand, G>, summand, num_rows, rows_per_chunk,
         ColumnSums<A, G, num_sums>{partial, totals, lane.workspace.tickets()});
}

}  // namespace echelon::cuda
