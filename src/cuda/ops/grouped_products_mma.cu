// Grouped matmuls in tensor cores: a block of four warps computes a tile of 128 x 128, a warp 64 x 64 of it in
// registers. The factors are loaded in tiles of 64 along k, two of which are being copied while a third is multiplied.
// A factor is contiguous either along k (a, and w [E, N, K]) or across it (w [E, K, N], and both factors of the weight
// gradient); ldmatrix transposes where needed.
#include "cuda/ops/attention_fragments.h"
#include "cuda/ops/grouped_products.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/row_tiles.h"

namespace echelon::cuda {
namespace {

using namespace fragments;

constexpr int num_warps = 4, num_threads = num_warps * warp_size;
constexpr int side = 128, warp_side = side / 2, step = 64;
constexpr int warp_fragments = warp_side / 16;
constexpr int num_stages = 3;
constexpr SharedPlace factor_bytes = side * step * sizeof(__nv_bfloat16);  // of one factor in one stage
constexpr std::size_t shared_bytes = std::size_t{num_stages} * 2 * factor_bytes;
// Of tiles whose blocks follow each other column by column, so that the second cache has what they share.
constexpr std::int64_t rows_of_group = 8;

using TileSums = Sums<warp_fragments, warp_side>;

/// A factor [side, step] whose rows are along k.
class Along {
  static constexpr int chunks = step / chunk_size, rows_at_once = num_threads / chunks, times = side / rows_at_once;
  using Tile = SharedRows<step>;

 public:
  /// Of rows as long as the sum, of which rows.count exist.
  __device__ __forceinline__ Along(const Rows<const __nv_bfloat16>& rows, std::int64_t K)
      : next_(rows.first + row_of_thread() * rows.stride + chunk_of_thread() * chunk_size),
        row_step_(rows.stride * rows_at_once),
        rows_left_(static_cast<int>(min(rows.count, std::int64_t{side})) - row_of_thread()),
        numbers_left_(K - chunk_of_thread() * chunk_size) {}

  __device__ __forceinline__ void begin_next(SharedPlace place) {
    const __nv_bfloat16* from = next_;
    SharedPlace to = Tile{place}.chunk(row_of_thread(), chunk_of_thread());
#pragma unroll
    for (int i = 0; i < times; ++i) {
      begin_copy<16>(to, from, i * rows_at_once < rows_left_ && numbers_left_ > 0);
      to += rows_at_once * Tile::row_bytes;
      from += row_step_;
    }
    next_ += step;
    numbers_left_ -= step;
  }
  /// 16 x 16 numbers of `m` times 16 rows from `first` on, as an operand a; k counts 16 of the sum.
  static __device__ __forceinline__ void load_a(FragmentA& out, SharedPlace place, int first, int m, int k) {
    load_matrices(out, downwards(Tile{place}.from(first)).at(16 * m, k));
  }
  /// As two operands b, of 8 columns each.
  static __device__ __forceinline__ void load_b(std::uint32_t (&out)[4], SharedPlace place, int first, int n, int k) {
    load_matrices(out, rightwards(Tile{place}.from(first)).at(16 * n, k));
  }

 private:
  static_assert(rows_at_once % 8 == 0);  // so that the permutation of chunks is the same for all of a thread's rows
  [[nodiscard]] static __device__ __forceinline__ int row_of_thread() { return static_cast<int>(threadIdx.x) / chunks; }
  [[nodiscard]] static __device__ __forceinline__ int chunk_of_thread() {
    return static_cast<int>(threadIdx.x) % chunks;
  }

  const __nv_bfloat16* next_;
  std::int64_t row_step_;
  int rows_left_;
  std::int64_t numbers_left_;
};

/// A factor whose rows [step, side] are across k.
class Across {
  using Tile = SharedRows<side>;

 public:
  /// Of `width` columns that exist, and rows.count rows.
  __device__ __forceinline__ Across(const Rows<const __nv_bfloat16>& rows, std::int64_t width)
      : loads_(rows, static_cast<int>(min(width, std::int64_t{side}))) {}

  __device__ __forceinline__ void begin_next(SharedPlace place) { loads_.begin_next({place}); }
  static __device__ __forceinline__ void load_a(FragmentA& out, SharedPlace place, int first, int m, int k) {
    load_transposed_matrices(out, rightwards(Tile{place}).at(16 * k, first / 16 + m));
  }
  static __device__ __forceinline__ void load_b(std::uint32_t (&out)[4], SharedPlace place, int first, int n, int k) {
    load_transposed_matrices(out, downwards(Tile{place}).at(16 * k, first / 16 + n));
  }

 private:
  TileLoads<step, num_threads, side> loads_;
};

/// The part of a block's tile that a warp computes.
struct WarpTile {
  int row = warp() / 2 * warp_side, column = warp() % 2 * warp_side;
};

/// sums = the warp's part of a b with a sum over K values; a warp without a part only helps to load.
template <class A, class B>
__device__ __forceinline__ void multiply(TileSums& sums, A a, B b, std::int64_t K, bool has_any) {
  const WarpTile mine;
  const auto num_steps = static_cast<int>((K + step - 1) / step);
  const auto begin = [&](int number, SharedPlace stage) {
    if (number < num_steps) {
      a.begin_next(stage);
      b.begin_next(stage + factor_bytes);
    }
    close_group_of_copies();
  };
  clear<warp_fragments, warp_side>(sums);
  SharedPlace stage = 0, free_stage = 2 * 2 * factor_bytes;
  begin(0, 0);
  begin(1, 2 * factor_bytes);
  const auto following = [](SharedPlace place) {
    return place == (num_stages - 1) * 2 * factor_bytes ? 0 : place + 2 * factor_bytes;
  };
#pragma unroll 1
  for (int number = 0; number < num_steps; ++number) {
    wait_for_copies_but_last<1>();
    __syncthreads();
    begin(number + 2, free_stage);
    if (has_any) {
#pragma unroll
      for (int k = 0; k < step / 16; ++k) {
        FragmentA of_a[warp_fragments];
#pragma unroll
        for (int m = 0; m < warp_fragments; ++m) A::load_a(of_a[m], stage, mine.row, m, k);
#pragma unroll
        for (int n = 0; n < warp_fragments; ++n) {
          std::uint32_t of_b[4];
          B::load_b(of_b, stage + factor_bytes, mine.column, n, k);
#pragma unroll
          for (int m = 0; m < warp_fragments; ++m) {
            multiply_add(sums[m][2 * n], of_a[m], of_b[0], of_b[1]);
            multiply_add(sums[m][2 * n + 1], of_a[m], of_b[2], of_b[3]);
          }
        }
      }
    }
    stage = following(stage);
    free_stage = following(free_stage);
  }
  wait_for_copies_but_last<0>();
}

/// Writes or adds the warp's sums to the block's tile of `c`, of which so many rows and columns exist; columns are even
/// in number.
template <class C>
__device__ __forceinline__ void store_sums(C* tile, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                                           const TileSums& sums, bool accumulates) {
  const WarpTile mine;
#pragma unroll
  for (int m = 0; m < warp_fragments; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = mine.row + 16 * m + row_in_fragment(r);
      if (row >= rows) continue;
      C* const out = tile + row * stride;
#pragma unroll
      for (int n = 0; n < warp_side / 8; ++n) {
        const int column = mine.column + 8 * n + column_in_fragment();
        if (column >= columns) continue;
        Pack<float, 2> pair = {{sums[m][n][2 * r], sums[m][n][2 * r + 1]}};
        if (accumulates) {
          const Pack<C, 2> before = load_pack<2>(out + column);
          pair.at[0] += widen(before.at[0]);
          pair.at[1] += widen(before.at[1]);
        }
        store_pack(out + column,
                   Pack<C, 2>{{echelon::cuda::narrow<C>(pair.at[0]), echelon::cuda::narrow<C>(pair.at[1])}});
      }
    }
}

/// Of tiles in rows and columns the one that a block computes.
struct TileOfBlock {
  std::int64_t row, column;

  __device__ __forceinline__ explicit TileOfBlock(std::int64_t num_columns) {
    const std::int64_t of_group = rows_of_group * num_columns, group = blockIdx.x / of_group,
                       in_group = blockIdx.x % of_group;
    row = group * rows_of_group + in_group % rows_of_group;
    column = in_group / rows_of_group;
  }
};
[[nodiscard]] constexpr std::int64_t blocks_for_tiles(std::int64_t num_rows, std::int64_t num_columns) {
  return blocks_for(num_rows, rows_of_group) * rows_of_group * num_columns;
}

struct Grouped {
  const __nv_bfloat16 *a, *w;
  const std::int32_t* offsets;
  __nv_bfloat16* c;
  std::int64_t K, N;
  int E;
  bool accumulates;
};

template <bool transpose_w>
__global__ void __launch_bounds__(num_threads, 2) grouped_matmul_kernel(Grouped g) {
  const TileOfBlock at((g.N + side - 1) / side);
  const RowTile tile = row_tile<side>(g.offsets, g.E, at.row);
  if (tile.expert < 0) return;
  const std::int64_t column = at.column * side, columns = g.N - column;
  const Along a({g.a + tile.first_row * g.K, g.K, tile.num_rows}, g.K);
  const __nv_bfloat16* const w = g.w + tile.expert * g.K * g.N;
  const WarpTile mine;
  const bool has_any = mine.row < tile.num_rows && mine.column < columns;
  TileSums sums;
  if constexpr (transpose_w)
    multiply(sums, a, Along({w + column * g.K, g.K, columns}, g.K), g.K, has_any);
  else
    multiply(sums, a, Across({w + column, g.N, g.K}, columns), g.K, has_any);
  store_sums(g.c + tile.first_row * g.N + column, g.N, tile.num_rows, columns, sums, g.accumulates);
}

template <class G>
__global__ void __launch_bounds__(num_threads, 2)
    grouped_weight_kernel(const __nv_bfloat16* dy, const __nv_bfloat16* x, const std::int32_t* offsets, G* dw,
                          std::int64_t F, std::int64_t D) {
  const TileOfBlock at((D + side - 1) / side);
  const std::int64_t expert = blockIdx.y, first = offsets[expert], count = offsets[expert + 1] - first;
  const std::int64_t row = at.row * side, column = at.column * side;
  if (count == 0 || row >= F) return;
  const WarpTile mine;
  TileSums sums;
  multiply(sums, Across({dy + first * F + row, F, count}, F - row),
           Across({x + first * D + column, D, count}, D - column), count,
           mine.row < F - row && mine.column < D - column);
  store_sums(dw + (expert * F + row) * D + column, D, F - row, D - column, sums, true);
}

[[nodiscard]] bool has_aligned_rows(std::int64_t size) { return size % chunk_size == 0; }

}  // namespace

bool mma_grouped_matmul(const GroupedMatmulArgs& args, cudaStream_t stream) {
  const std::int64_t R = args.a.size(0), E = args.w.size(0), K = args.a.size(1), N = args.c.size(1);
  if (args.a.dtype != DType::bfloat16 || !has_aligned_rows(K) || !has_aligned_rows(N)) return false;
  launch({.num_blocks = blocks_for_tiles(most_row_tiles(R, E, side), blocks_for(N, side)),
          .num_threads = num_threads,
          .shared_bytes = shared_bytes,
          .stream = stream},
         args.transpose_w ? grouped_matmul_kernel<true> : grouped_matmul_kernel<false>,
         Grouped{numbers<bfloat16>(args.a), numbers<bfloat16>(args.w), numbers<std::int32_t>(args.offsets),
                 numbers<bfloat16>(args.c), K, N, static_cast<int>(E), args.accumulates});
  return true;
}

bool mma_grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args, cudaStream_t stream) {
  const std::int64_t E = args.dw.size(0), F = args.dw.size(1), D = args.dw.size(2);
  if (args.dy.dtype != DType::bfloat16 || !has_aligned_rows(F) || !has_aligned_rows(D)) return false;
  visit_numbers_and_gradient(args.dy.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
    if constexpr (std::is_same_v<T, bfloat16>)
      launch({.num_blocks = blocks_for_tiles(blocks_for(F, side), blocks_for(D, side)),
              .num_threads = num_threads,
              .num_blocks_y = E,
              .shared_bytes = shared_bytes,
              .stream = stream},
             grouped_weight_kernel<on_device<G>>, numbers<bfloat16>(args.dy), numbers<bfloat16>(args.x),
             numbers<std::int32_t>(args.offsets), numbers<G>(args.dw), F, D);
  });
  return true;
}

}  // namespace echelon::cuda
