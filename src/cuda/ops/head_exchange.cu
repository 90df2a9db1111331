// Rows and heads in the order of context parallelism's exchanges (formulas: ops/operations/head_exchange.h). Bound by
// memory: a warp has a row of the result, in accesses of 16 bytes.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

/// Where row i of the result comes from: `copies` rows of x, `stride` apart.
struct RowOrder {
  const std::int32_t* index;  // or null: a transposition of [outer, inner] rows
  std::int64_t outer, inner, copies;
  bool is_split;  // by receiver; else by token

  __device__ __forceinline__ std::int64_t first_of(std::int64_t row) const {
    if (index != nullptr) return index[row];
    if (is_split) return row % inner * (outer / copies) + row / inner / copies;
    return row % inner * copies * outer + row / inner;
  }
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    move_rows_kernel(const T* __restrict__ x, T* __restrict__ y, RowOrder order, std::int64_t num_rows,
                     std::int64_t W) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) / warp_size;
  if (row >= num_rows) return;
  const std::int64_t from = order.first_of(row);
  for (std::int64_t c = threadIdx.x % warp_size * width; c < W; c += warp_size * width) {
    Pack<T, width> moved = {};
    if (from >= 0) moved = load_pack<width>(x + from * W + c);
    store_pack(y + row * W + c, moved);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    add_copies_kernel(const T* __restrict__ x, T* __restrict__ y, RowOrder order, std::int64_t num_rows,
                      std::int64_t W) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) / warp_size;
  if (row >= num_rows) return;
  const std::int64_t from = order.first_of(row);
  for (std::int64_t c = threadIdx.x % warp_size * width; c < W; c += warp_size * width) {
    Pack<Wide<T>, width> sum = {};
    for (std::int64_t r = 0; r < order.copies; ++r) {
      const Pack<T, width> of_rank = load_pack<width>(x + (from + r * order.outer) * W + c);
#pragma unroll
      for (int n = 0; n < width; ++n) sum.at[n] += widen(of_rank.at[n]);
    }
    store_pack(y + row * W + c, narrow<T>(sum));
  }
}

void move_rows(const Tensor& x, const Tensor& y, const RowOrder& order, cudaStream_t stream) {
  if (y.num_elements() == 0) return;
  const std::int64_t W = y.size(-1), num_rows = y.num_elements() / W;
  visit_numbers(x.dtype, [&]<class T>(T) {
    visit_row_width<T>(W, [&]<int width>(std::integral_constant<int, width>) {
      using D = on_device<T>;
      const bool adds = !order.is_split && order.copies > 1;
      launch({.num_blocks = blocks_for(num_rows, block_threads / warp_size),
              .num_threads = block_threads,
              .stream = stream},
             adds ? add_copies_kernel<D, width> : move_rows_kernel<D, width>, numbers<T>(x), numbers<T>(y), order,
             num_rows, W);
    });
  });
}

}  // namespace

void CudaOps::compute(const SplitHeadsArgs& args) {
  move_rows(
      args.x, args.y,
      {.index = nullptr, .outer = args.y.size(0), .inner = args.y.size(1), .copies = args.copies, .is_split = true},
      stream());
}

void CudaOps::compute(const JoinHeadsArgs& args) {
  move_rows(
      args.x, args.y,
      {.index = nullptr, .outer = args.y.size(0), .inner = args.y.size(1), .copies = args.copies, .is_split = false},
      stream());
}

void CudaOps::compute(const GatherRowsArgs& args) {
  move_rows(args.x, args.y,
            {.index = numbers<std::int32_t>(args.index), .outer = 0, .inner = 0, .copies = 1, .is_split = true},
            stream());
}

}  // namespace echelon::cuda
