// Grouped matmuls in any format and of any size, without tensor cores: blocks of 16 x 16 threads form tiles of 64 x 64,
// a thread 4 x 4 numbers of them.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/grouped_products.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/row_tiles.h"

namespace echelon::cuda {
namespace {

constexpr int side = 64, threads_across = 16, num_threads = threads_across * threads_across,
              per_thread = side / threads_across;
constexpr int piece = 16;  // of the sum's index, in shared memory at a time

__device__ __forceinline__ int row_of_thread(int r) {
  return static_cast<int>(threadIdx.x) / threads_across + threads_across * r;
}
__device__ __forceinline__ int column_of_thread(int n) {
  return static_cast<int>(threadIdx.x) % threads_across + threads_across * n;
}

/// A factor as the matmul sees it: value (i, p), where p is summed over, is at i outer + p inner.
template <class T>
struct Strided {
  const T* first;
  std::int64_t outer, inner;
  std::int64_t count;  // of i, that exist

  /// Values [0, side) x [first_p, first_p + piece), zeros past the ends, by all threads; neighbours in memory by
  /// neighbouring ones.
  __device__ __forceinline__ void load(Wide<T> (&out)[piece][side + 1], std::int64_t first_p, std::int64_t K) const {
    for (int n = static_cast<int>(threadIdx.x); n < side * piece; n += num_threads) {
      const int i = inner == 1 ? n / piece : n % side, p = inner == 1 ? n % piece : n / side;
      const bool exists = i < count && first_p + p < K;
      out[p][i] = exists ? widen(first[i * outer + (first_p + p) * inner]) : Wide<T>(0);
    }
  }
};

template <class W>
using Sums = W[per_thread][per_thread];

/// sums[i][j] = sum over p < K of a(i, p) b(j, p)
template <class T>
__device__ __forceinline__ void multiply(Sums<Wide<T>>& sums, const Strided<T>& a, const Strided<T>& b,
                                         std::int64_t K) {
  using W = Wide<T>;
  __shared__ W of_a[piece][side + 1];
  __shared__ W of_b[piece][side + 1];
  for (int r = 0; r < per_thread; ++r)
    for (int n = 0; n < per_thread; ++n) sums[r][n] = 0;
  for (std::int64_t first_p = 0; first_p < K; first_p += piece) {
    __syncthreads();
    a.load(of_a, first_p, K);
    b.load(of_b, first_p, K);
    __syncthreads();
#pragma unroll
    for (int p = 0; p < piece; ++p) {
      W row[per_thread], column[per_thread];
      for (int r = 0; r < per_thread; ++r) row[r] = of_a[p][row_of_thread(r)];
      for (int n = 0; n < per_thread; ++n) column[n] = of_b[p][column_of_thread(n)];
      for (int r = 0; r < per_thread; ++r)
        for (int n = 0; n < per_thread; ++n) sums[r][n] += row[r] * column[n];
    }
  }
}

/// Writes or adds the sums to `c`, of which so many rows and columns exist.
template <class C, class W>
__device__ __forceinline__ void store(C* c, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                                      const Sums<W>& sums, bool accumulates) {
  for (int r = 0; r < per_thread; ++r)
    for (int n = 0; n < per_thread; ++n) {
      if (row_of_thread(r) >= rows || column_of_thread(n) >= columns) continue;
      C& number = c[row_of_thread(r) * stride + column_of_thread(n)];
      number = narrow<C>(accumulates ? widen(number) + sums[r][n] : sums[r][n]);
    }
}

template <class T>
struct Grouped {
  const T *a, *w;
  const std::int32_t* offsets;
  T* c;
  std::int64_t K, N;
  int E;
  bool transpose_w, accumulates;
};

template <class T>
__global__ void __launch_bounds__(num_threads) grouped_matmul_kernel(Grouped<T> g) {
  const std::int64_t column_tiles = (g.N + side - 1) / side, column = blockIdx.x % column_tiles * side;
  const RowTile tile = row_tile<side>(g.offsets, g.E, blockIdx.x / column_tiles);
  if (tile.expert < 0) return;
  const Strided<T> a = {g.a + tile.first_row * g.K, g.K, 1, tile.num_rows};
  const std::int64_t outer = g.transpose_w ? g.K : 1, inner = g.transpose_w ? 1 : g.N;
  const Strided<T> b = {g.w + tile.expert * g.K * g.N + column * outer, outer, inner, g.N - column};
  Sums<Wide<T>> sums;
  multiply(sums, a, b, g.K);
  store(g.c + tile.first_row * g.N + column, g.N, tile.num_rows, g.N - column, sums, g.accumulates);
}

/// A block for each tile of each expert's dw; it sums over the expert's rows in their order.
template <class T, class G>
__global__ void __launch_bounds__(num_threads)
    grouped_weight_kernel(const T* dy, const T* x, const std::int32_t* offsets, G* dw, std::int64_t F, std::int64_t D) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * side,
                     row = static_cast<std::int64_t>(blockIdx.y) * side, expert = blockIdx.z;
  const std::int64_t first = offsets[expert], count = offsets[expert + 1] - first;
  if (count == 0) return;
  Sums<Wide<T>> sums;
  multiply(sums, Strided<T>{dy + first * F + row, 1, F, F - row}, Strided<T>{x + first * D + column, 1, D, D - column},
           count);
  store(dw + (expert * F + row) * D + column, D, F - row, D - column, sums, true);
}

}  // namespace

void CudaOps::compute(const GroupedMatmulArgs& args) {
  if (mma_grouped_matmul(args, stream())) return;
  const std::int64_t R = args.a.size(0), E = args.w.size(0), K = args.a.size(1), N = args.c.size(1);
  visit_numbers(args.a.dtype, [&]<class T>(T) {
    launch({.num_blocks = most_row_tiles(R, E, side) * blocks_for(N, side),
            .num_threads = num_threads,
            .stream = stream()},
           grouped_matmul_kernel<on_device<T>>,
           Grouped<on_device<T>>{numbers<T>(args.a), numbers<T>(args.w), numbers<std::int32_t>(args.offsets),
                                 numbers<T>(args.c), K, N, static_cast<int>(E), args.transpose_w, args.accumulates});
  });
}

void CudaOps::compute(const GroupedMatmulBackwardWeightArgs& args) {
  if (mma_grouped_matmul_backward_weight(args, stream())) return;
  const std::int64_t E = args.dw.size(0), F = args.dw.size(1), D = args.dw.size(2);
  visit_numbers_and_gradient(args.dy.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
    launch({.num_blocks = blocks_for(D, side),
            .num_threads = num_threads,
            .num_blocks_y = blocks_for(F, side),
            .num_blocks_z = E,
            .stream = stream()},
           grouped_weight_kernel<on_device<T>, on_device<G>>, numbers<T>(args.dy), numbers<T>(args.x),
           numbers<std::int32_t>(args.offsets), numbers<G>(args.dw), F, D);
  });
}

}  // namespace echelon::cuda
