// What attention's kernels for tensor cores are made of: tiles of rows in shared memory, and products of tiles whose
// sums are in the registers of a warp. A warp has 16 M rows of the result; C is the head's width, padded to a multiple
// of 64 with zeros.
#pragma once

#include "cuda/device/mma.h"
#include "cuda/device/packs.h"
#include "cuda/ops/attention_sizes.h"

namespace echelon::cuda::fragments {

constexpr int chunk_size = 8;  // values in 16 bytes
constexpr float log2_e = 1.4426950408889634F, ln_2 = 0.6931471805599453F;

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / warp_size; }
/// Of the rows of a fragment c that a lane holds, 0 or 1, in its 16 rows; of its column pairs, in its 8 columns.
__device__ __forceinline__ int row_in_fragment(int r) { return lane() / 4 + 8 * r; }
__device__ __forceinline__ int column_in_fragment() { return lane() % 4 * 2; }

/// Rows of C values. The 16-byte chunks of a row are permuted by its number, so that the eight rows of a matrix, whose
/// chunks load_matrices() reads at once, are in different banks.
template <int C>
struct SharedRows {
  static_assert(C % 64 == 0);
  static constexpr int row_bytes = C * 2;
  SharedPlace place;  // a multiple of 128

  [[nodiscard]] __device__ __forceinline__ SharedRows from(int row) const {
    return {place + static_cast<SharedPlace>(row * row_bytes)};
  }
  [[nodiscard]] __device__ __forceinline__ SharedPlace chunk(int row, int number) const {
    return place + static_cast<SharedPlace>(row * row_bytes + (number ^ (row % 8)) * 16);
  }
};

/// Chunks 2 k and 2 k + 1 of 16 rows as this lane names them to load_matrices(). The permutation changes only two bits
/// of k, so most of the difference between the loads of a tile is constant.
template <int C>
struct LaneRows {
  SharedPlace place;

  [[nodiscard]] __device__ __forceinline__ SharedPlace at(int row, int k) const {
    return (place ^ static_cast<SharedPlace>(k % 4 * 32)) +
           static_cast<SharedPlace>(k / 4 * 128 + row * SharedRows<C>::row_bytes);
  }
};
/// Matrices in the order: upper and lower rows of the left chunk, then of the right one.
template <int C>
[[nodiscard]] __device__ __forceinline__ LaneRows<C> downwards(const SharedRows<C>& rows) {
  return {rows.chunk(lane() % 16, lane() / 16)};
}
/// Left and right chunk of the upper rows, then of the lower ones.
template <int C>
[[nodiscard]] __device__ __forceinline__ LaneRows<C> rightwards(const SharedRows<C>& rows) {
  return {rows.chunk(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2)};
}

/// Loads tiles of successive rows, by all threads of the block: a thread has the same chunk of several rows.
template <int num_rows, int num_threads, int C>
class TileLoads {
  static constexpr int chunks = C / chunk_size, rows_at_once = num_threads / chunks, times = num_rows / rows_at_once;
  static_assert(times * rows_at_once == num_rows);

 public:
  /// Columns from `width` on are zeros, and rows that do not exist.
  __device__ __forceinline__ TileLoads(const Rows<const __nv_bfloat16>& rows, int width)
      : next_(rows.first + row_of_thread() * rows.stride + chunk_of_thread() * chunk_size),
        step_(static_cast<int>(rows.stride) * rows_at_once),
        num_left_(chunk_of_thread() * chunk_size < width ? static_cast<int>(rows.count) - row_of_thread() : 0) {}

  __device__ __forceinline__ void begin_next(const SharedRows<C>& out) {
    const __nv_bfloat16* from = next_;
    SharedPlace to = out.chunk(row_of_thread(), chunk_of_thread());
#pragma unroll
    for (int i = 0; i < times; ++i) {
      if constexpr (rows_at_once % 8 != 0) to = out.chunk(row_of_thread() + i * rows_at_once, chunk_of_thread());
      begin_copy<16>(to, from, i * rows_at_once < num_left_);
      to += rows_at_once * SharedRows<C>::row_bytes;
      from += step_;
    }
    next_ = from;
    num_left_ -= num_rows;
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ int row_of_thread() { return static_cast<int>(threadIdx.x) / chunks; }
  [[nodiscard]] static __device__ __forceinline__ int chunk_of_thread() {
    return static_cast<int>(threadIdx.x) % chunks;
  }

  const __nv_bfloat16* next_;
  int step_, num_left_;  // few registers are left
};

/// [16 M, N] of a warp.
template <int M, int N>
using Sums = FragmentC[M][N / 8];

template <int M, int N>
__device__ __forceinline__ void clear(Sums<M, N>& s) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (float& number : s[m][n]) number = 0;
}

/// s = a b^T with the first 16 M rows of a and N rows of b.
template <int M, int N, int C>
__device__ __forceinline__ void multiply_transposed(Sums<M, N>& s, const SharedRows<C>& a, const SharedRows<C>& b) {
  clear<M, N>(s);
  const LaneRows<C> lane_a = downwards(a), lane_b = rightwards(b);
#pragma unroll 4
  for (int k = 0; k < C / 16; ++k) {
    FragmentA of_a[M];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(of_a[m], lane_a.at(16 * m, k));
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      std::uint32_t of_b[4];
      load_matrices(of_b, lane_b.at(16 * n, k));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add(s[m][2 * n], of_a[m], of_b[0], of_b[1]);
        multiply_add(s[m][2 * n + 1], of_a[m], of_b[2], of_b[3]);
      }
    }
  }
}

/// Sums as operands a of the next matmul, rounded to bfloat16.
template <int M, int N>
using Weights = FragmentA[M][N / 16];

template <int M, int N>
__device__ __forceinline__ void narrow(Weights<M, N>& weights, const Sums<M, N>& s) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < N / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[m][k][i] = narrow_pair(s[m][2 * k + i / 2][i % 2 * 2], s[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

/// sums += weights x with N rows of x.
template <int M, int N, int C>
__device__ __forceinline__ void add_weighted(Sums<M, C>& sums, const Weights<M, N>& weights, const SharedRows<C>& x) {
  const LaneRows<C> lane_x = downwards(x);
#pragma unroll
  for (int k = 0; k < N / 16; ++k)
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
      std::uint32_t of_x[4];
      load_transposed_matrices(of_x, lane_x.at(16 * k, n));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add(sums[m][2 * n], weights[m][k], of_x[0], of_x[1]);
        multiply_add(sums[m][2 * n + 1], weights[m][k], of_x[2], of_x[3]);
      }
    }
}

/// Which bounds a mask has; each kind has its own kernels, so that the common one needs few registers.
enum class Bounds : int {
  begins,           // or none: a causal mask, with the first key that each query sees
  begins_and_ends,  // ranges of keys
};

/// The bounds of a warp whose queries start at first_query: its first query sees keys from `first_begin` on and before
/// `first_end`, its last one from `last_begin` on and before `last_end`.
struct WarpRanges {
  int first_begin, last_begin, first_end, last_end;
};
template <int M>
[[nodiscard]] __device__ __forceinline__ WarpRanges ranges_of_warp(const AttentionSizes& sizes, int b,
                                                                   int first_query) {
  const int last_query = first_query + 16 * M - 1;
  return {static_cast<int>(sizes.first_visible(b, first_query)), static_cast<int>(sizes.first_visible(b, last_query)),
          static_cast<int>(sizes.end_visible(b, first_query)), static_cast<int>(sizes.end_visible(b, last_query))};
}
/// Numbers of a warp's queries and N keys from first_key on become `hidden` where the key is of an earlier document.
template <int M, int N>
__device__ __forceinline__ void mask_documents(Sums<M, N>& s, const AttentionSizes& sizes, int b, int first_query,
                                               int first_key, float hidden) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int begin = static_cast<int>(sizes.first_visible(b, first_query + 16 * m + row_in_fragment(r))) -
                        first_key - column_in_fragment();
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i < begin) s[m][n][2 * r + i] = hidden;
    }
}

/// The same where the key is not before the end of the query's range.
template <int M, int N>
__device__ __forceinline__ void mask_ends(Sums<M, N>& s, const AttentionSizes& sizes, int b, int first_query,
                                          int first_key, float hidden) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int end = static_cast<int>(sizes.end_visible(b, first_query + 16 * m + row_in_fragment(r))) - first_key -
                      column_in_fragment();
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i >= end) s[m][n][2 * r + i] = hidden;
    }
}

/// How many of a lane's values, in rows that exist, are ones of which `is_counted` holds.
template <int M, int N, class F>
__device__ __forceinline__ std::int64_t count(const Sums<M, N>& s, int num_rows, const F& is_counted) {
  std::int64_t found = 0;
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N / 8; ++n)
      for (int i = 0; i < 4; ++i)
        if (16 * m + row_in_fragment(i / 2) < num_rows && is_counted(s[m][n][i])) ++found;
  return found;
}
/// Sets numbers of keys that a query does not see to `hidden`: the warp's first row sees num_visible of the tile, each
/// further row one more, up to num_keys.
template <int M, int N>
__device__ __forceinline__ void mask_keys(Sums<M, N>& numbers, int num_visible, int num_keys, float hidden) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int end = min(num_visible + 16 * m + row_in_fragment(i / 2), num_keys) - column_in_fragment() - i % 2;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        if (8 * n >= end) numbers[m][n][i] = hidden;
    }
}
/// What a tile's masks leave: hide(ones) clears the others.
template <int M, int N, class F>
__device__ __forceinline__ std::int64_t count_left(int num_rows, const F& hide) {
  Sums<M, N> ones;
  for (auto& of_row : ones)
    for (auto& fragment : of_row)
      for (float& number : fragment) number = 1;
  hide(ones);
  return count<M, N>(ones, num_rows, [](float number) { return number != 0; });
}

/// Writes a warp's sums, times factor[m][r], as its first rows of `out`, in accesses of 16 bytes through `shared`,
/// which has 16 M rows that no other warp uses.
template <int M, int C>
__device__ __forceinline__ void store(const Rows<__nv_bfloat16>& out, int width, const Sums<M, C>& sums,
                                      const float (&factor)[M][2], const SharedRows<C>& shared) {
  constexpr int per_row = C / chunk_size;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < per_row; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::uint32_t pair = narrow_pair(sums[m][n][2 * r] * factor[m][r], sums[m][n][2 * r + 1] * factor[m][r]);
        *pointer_to<std::uint32_t>(shared.chunk(16 * m + row_in_fragment(r), n) + column_in_fragment() * 2) = pair;
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * M * per_row / warp_size; ++i) {
    const int n = i * warp_size + lane(), row = n / per_row, chunk = n % per_row;
    if (row >= out.count || chunk * chunk_size >= width) continue;
    store_pack(out.first + row * out.stride + chunk * chunk_size,
               load_pack<chunk_size>(pointer_to<__nv_bfloat16>(shared.chunk(row, chunk))));
  }
}

}  // namespace echelon::cuda::fragments
