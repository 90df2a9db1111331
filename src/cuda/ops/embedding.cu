// Rows of tables: tokens and learned positions, and the gradients of positions. A warp takes a row, or one of its
// parts; all are bound by memory.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;

/// The row of a warp, and its lane's first column.
template <int width>
struct RowOfWarp {
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * block_warps + threadIdx.x / warp_size;
  std::int64_t column = static_cast<std::int64_t>(threadIdx.x % warp_size) * width;
  static constexpr std::int64_t stride = warp_size * width;
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    embedding_kernel(const std::int32_t* tokens, std::int64_t first_row, std::int64_t num_rows, const T* __restrict__ w,
                     T* __restrict__ y, std::int64_t N, std::int64_t D) {
  const RowOfWarp<width> at;
  if (at.row >= N) return;
  const std::int64_t row = tokens[at.row] - first_row;
  const bool is_here = row >= 0 && row < num_rows;
#pragma unroll 4
  for (std::int64_t column = at.column; column < D; column += at.stride) {
    PackedWords<T, width> numbers;  // zeros
    if (is_here) numbers = load_words<width>(w + row * D + column);
    store_words(y + at.row * D + column, numbers);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    add_positions_kernel(const T* __restrict__ w, T* __restrict__ y, std::int64_t N, std::int64_t D,
                         std::int64_t seq_len, std::int64_t first_token, const std::int32_t* __restrict__ positions) {
  const RowOfWarp<width> at;
  if (at.row >= N) return;
  const std::int64_t token = first_token + at.row;
  const T* const added = w + (positions == nullptr ? token % seq_len : positions[token]) * D;
  T* const row = y + at.row * D;
#pragma unroll 4
  for (std::int64_t column = at.column; column < D; column += at.stride) {
    const Pack<T, width> w_k = load_pack<width>(added + column), y_k = load_pack<width>(row + column);
    Pack<T, width> sum;
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] = narrow<T>(widen(y_k.at[i]) + widen(w_k.at[i]));
    store_pack(row + column, sum);
  }
}

/// A thread takes `width` columns of a position: it sees that position's tokens in their order, and rounds every sum to
/// dw's format like other backends.
template <class T, class G, int width>
__global__ void __launch_bounds__(block_threads)
    positions_backward_kernel(const T* __restrict__ dy, G* __restrict__ dw, std::int64_t N, std::int64_t D,
                              std::int64_t seq_len, std::int64_t first_token) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x,
                     packs_per_row = D / width;
  const std::int64_t position = pack / packs_per_row, column = pack % packs_per_row * width;
  if (position >= seq_len) return;
  const std::int64_t first = (position + seq_len - first_token % seq_len) % seq_len;
  if (first >= N) return;
  Pack<Wide<T>, width> sum = widen(load_pack<width>(dw + position * D + column));
#pragma unroll 4
  for (std::int64_t n = first; n < N; n += seq_len) {
    const Pack<T, width> dy_n = load_pack<width>(dy + n * D + column);
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] = widen(narrow<G>(sum.at[i] + widen(dy_n.at[i])));
  }
  store_pack(dw + position * D + column, narrow<G>(sum));
}

}  // namespace

void CudaOps::compute(const EmbeddingArgs& args) {
  const std::int64_t N = args.tokens.num_elements(), D = args.w.size(1);
  visit_numbers(args.y.dtype, [&]<class T>(T) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      launch({.num_blocks = blocks_for(N, block_warps), .num_threads = block_threads, .stream = stream()},
             embedding_kernel<on_device<T>, width>, numbers<std::int32_t>(args.tokens), args.first_row, args.w.size(0),
             numbers<T>(args.w), numbers<T>(args.y), N, D);
    });
  });
}

void CudaOps::compute(const PositionsArgs& args) {
  const std::int64_t D = args.w.size(1), N = D == 0 ? 0 : args.y.num_elements() / D;
  visit_numbers(args.y.dtype, [&]<class T>(T) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      launch({.num_blocks = blocks_for(N, block_warps), .num_threads = block_threads, .stream = stream()},
             add_positions_kernel<on_device<T>, width>, numbers<T>(args.w), numbers<T>(args.y), N, D, args.seq_len,
             args.first_token, numbers<std::int32_t>(args.positions));
    });
  });
}

void CudaOps::compute(const PositionsBackwardArgs& args) {
  const std::int64_t D = args.dw.size(1), N = D == 0 ? 0 : args.dy.num_elements() / D;
  if (N == 0) return;
  if (args.positions.exists())
    return compute(EmbeddingBackwardArgs{
        .tokens = positions_of_rows(args.positions, args.first_token, N), .dy = args.dy, .dw = args.dw});
  visit_numbers_and_gradient(args.dy.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
    visit_row_width<T>(D, [&]<int width>(std::integral_constant<int, width>) {
      launch({.num_blocks = blocks_for(args.seq_len * (D / width), block_threads),
              .num_threads = block_threads,
              .stream = stream()},
             positions_backward_kernel<on_device<T>, on_device<G>, width>, numbers<T>(args.dy), numbers<G>(args.dw), N,
             D, args.seq_len, args.first_token);
    });
  });
}

}  // namespace echelon::cuda
