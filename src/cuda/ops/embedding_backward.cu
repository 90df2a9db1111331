// The gradient of a table of tokens: dw[token] += dy in the order of the tokens, without atomics. Two kernels for a
// chunk of tokens.
//
// The first sorts the tokens by (row of the table, token). A token's place is the number of tokens before it in that
// order, which a warp counts by reading all. That is quadratic in the chunk's length. The length is chosen such that it
// costs no more than the dozen launches of a radix sort.
//
// The second gives a warp one run of equal rows, and a part of their columns. dw's row is read and written once for the
// chunk. Every sum is rounded to dw's dtype as if dw had been written in between, so the bits are those of other
// backends.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

#include <algorithm>
#include <limits>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;
constexpr int tokens_of_chunk = 8192, tokens_of_warp = 8, rows_in_flight = 8;

/// A chunk's tokens: where they are of the table, and which tokens they are. In the order of the rows once they are
/// sorted.
struct SortedTokens {
  std::int32_t *rows, *tokens;
};

/// The rows of the table that this shard has.
struct Shard {
  std::int64_t first_row, num_rows;
  /// Tokens of other shards come last.
  [[nodiscard]] __device__ std::int32_t row_of(std::int32_t token) const {
    const std::int64_t row = token - first_row;
    return static_cast<std::int32_t>(row >= 0 && row < num_rows ? row : num_rows);
  }
};

__global__ void __launch_bounds__(block_threads)
    sort_tokens_kernel(const std::int32_t* __restrict__ tokens, int count, Shard shard, SortedTokens out) {
  const int warp = static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size,
            lane = static_cast<int>(threadIdx.x) % warp_size;
  const int first = warp * tokens_of_warp;  // of the tokens whose places this warp finds
  if (first >= count) return;
  std::int32_t rows[tokens_of_warp];
  int places[tokens_of_warp] = {};
#pragma unroll
  for (int k = 0; k < tokens_of_warp; ++k)
    rows[k] = first + k < count ? shard.row_of(tokens[first + k]) : std::numeric_limits<std::int32_t>::max();
#pragma unroll 4
  for (int start = 0; start < count; start += warp_size) {
    const int other = start + lane;
    const std::int32_t row = other < count ? shard.row_of(tokens[other]) : std::numeric_limits<std::int32_t>::max();
#pragma unroll
    for (int k = 0; k < tokens_of_warp; ++k)
      places[k] += row < rows[k] || (row == rows[k] && other < first + k) ? 1 : 0;
  }
#pragma unroll
  for (int k = 0; k < tokens_of_warp; ++k) {
    const int place = warp_sum(places[k]);
    if (lane == k && first + k < count) {
      out.rows[place] = rows[k];
      out.tokens[place] = first + k;
    }
  }
}

/// dy of the chunk's tokens; a warp for every place in their order, of which only the starts of runs of equal rows do
/// work.
template <class T, class G, int width>
__global__ void __launch_bounds__(block_threads)
    sum_runs_kernel(SortedTokens sorted, int count, std::int64_t num_rows, const T* __restrict__ dy, G* __restrict__ dw,
                    std::int64_t D) {
  const int begin = static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size,
            lane = static_cast<int>(threadIdx.x) % warp_size;
  if (begin >= count) return;
  const std::int32_t row = sorted.rows[begin];
  if (row == num_rows || (begin > 0 && sorted.rows[begin - 1] == row)) return;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * warp_size + lane) * width;
  const bool has_columns = column < D;
  Pack<Wide<T>, width> sum = {};
  if (has_columns) sum = widen(load_pack<width>(dw + row * D + column));
  for (int start = begin, present = warp_size; present == warp_size; start += warp_size) {
    const bool is_of_row = start + lane < count && sorted.rows[start + lane] == row;
    const std::int32_t token = is_of_row ? sorted.tokens[start + lane] : 0;
    present = __popc(__ballot_sync(whole_warp, is_of_row));
    for (int first = 0; first < present; first += rows_in_flight) {
      PackedWords<T, width> dy_k[rows_in_flight];
#pragma unroll
      for (int k = 0; k < rows_in_flight; ++k) {
        const std::int64_t n = __shfl_sync(whole_warp, token, first + k);
        if (first + k < present && has_columns) dy_k[k] = load_words<width>(dy + n * D + column);
      }
#pragma unroll
      for (int k = 0; k < rows_in_flight; ++k) {
        const Pack<T, width> numbers = unpack(dy_k[k]);
#pragma unroll
        for (int i = 0; i < width; ++i)
          if (first + k < present) sum.at[i] = widen(narrow<G>(sum.at[i] + widen(numbers.at[i])));
      }
    }
  }
  if (has_columns) store_pack(dw + row * D + column, narrow<G>(sum));
}

}  // namespace

void CudaOps::compute(const EmbeddingBackwardArgs& args) {
  const std::int64_t N = args.tokens.num_elements(), num_rows = args.dw.size(0), D = args.dw.size(1);
  if (D == 0 || num_rows == 0) return;
  const auto* const tokens = numbers<std::int32_t>(args.tokens);
  const SortedTokens sorted = {workspace_.as<std::int32_t>(tokens_of_chunk),
                               workspace_.as<std::int32_t>(tokens_of_chunk, tokens_of_chunk * sizeof(std::int32_t))};
  for (std::int64_t first = 0; first < N; first += tokens_of_chunk) {
    const int count = static_cast<int>(std::min<std::int64_t>(tokens_of_chunk, N - first));
    launch({.num_blocks = blocks_for(count, block_warps * tokens_of_warp),
            .num_threads = block_threads,
            .stream = stream()},
           sort_tokens_kernel, tokens + first, count, Shard{args.first_row, num_rows}, sorted);
    visit_numbers_and_gradient(args.dy.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
      visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
        launch({.num_blocks = blocks_for(count, block_warps),
                .num_threads = block_threads,
                .num_blocks_y = blocks_for(D, warp_size * width),
                .stream = stream()},
               sum_runs_kernel<on_device<T>, on_device<G>, width>, sorted, count, num_rows,
               numbers<T>(args.dy) + first * D, numbers<G>(args.dw), D);
      });
    });
  }
}

}  // namespace echelon::cuda
