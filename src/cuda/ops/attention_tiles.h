// What attention's general kernels are made of: blocks of 16 x 16 threads that form a tile of 64 x 64 scores, a thread
// 4 x 4 of them, and sums of rows that are weighted with such a tile. Operands pass through shared memory in pieces, so
// that a head may be of any width.
#pragma once

#include "cuda/device/lanes.h"
#include "cuda/ops/attention_sizes.h"

namespace echelon::cuda::tiles {

constexpr int side = 64;            // of a tile of scores
constexpr int threads_across = 16;  // a thread has rows threadIdx / 16 + 16 r and columns threadIdx % 16 + 16 n
constexpr int num_threads = threads_across * threads_across;
constexpr int per_thread = side / threads_across;
constexpr int piece = 32;  // of a head's width in products of rows, of rows in weighted sums
constexpr int max_columns = 128;

template <class W>
struct Memory {
  W a[side][piece + 1], b[side][piece + 1];  // padded: a warp reads 16 rows at once
  W weights[side][side + 1];
  /// Rows of `columns` values, in the place of a and b.
  template <int columns>
  [[nodiscard]] __device__ __forceinline__ W (*rows())[columns] {
    static_assert(sizeof(W) * piece * columns <= sizeof a + sizeof b);
    return reinterpret_cast<W(*)[columns]>(&a[0][0]);
  }
};

__device__ __forceinline__ int row_of_thread(int r) {
  return static_cast<int>(threadIdx.x) / threads_across + threads_across * r;
}
__device__ __forceinline__ int column_of_thread(int n) {
  return static_cast<int>(threadIdx.x) % threads_across + threads_across * n;
}

template <class W>
using Scores = W[per_thread][per_thread];
template <class W, int columns>
using Sums = W[per_thread][columns / threads_across];

/// Values [0, num_rows) x [first, first + width) of `x`; zero past its rows and past column C.
template <int num_rows, int width, class T, class W>
__device__ __forceinline__ void load(W* out, int pitch, const Rows<T>& x, std::int64_t first, std::int64_t C) {
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * width; i += num_threads) {
    const int row = i / width, column = i % width;
    const bool exists = row < x.count && first + column < C;
    out[row * pitch + column] = exists ? widen(x.first[row * x.stride + first + column]) : W(0);
  }
}

/// s[i][j] = a_i . b_j. Starts with a barrier.
template <class W, class T>
__device__ __forceinline__ void products(Scores<W>& s, Memory<W>& memory, const Rows<T>& a, const Rows<T>& b,
                                         std::int64_t C) {
  for (int r = 0; r < per_thread; ++r)
    for (int n = 0; n < per_thread; ++n) s[r][n] = 0;
  for (std::int64_t first = 0; first < C; first += piece) {
    __syncthreads();
    load<side, piece>(&memory.a[0][0], piece + 1, a, first, C);
    load<side, piece>(&memory.b[0][0], piece + 1, b, first, C);
    __syncthreads();
    for (int c = 0; c < piece; ++c) {
      W of_a[per_thread], of_b[per_thread];
      for (int r = 0; r < per_thread; ++r) of_a[r] = memory.a[row_of_thread(r)][c];
      for (int n = 0; n < per_thread; ++n) of_b[n] = memory.b[column_of_thread(n)][c];
      for (int r = 0; r < per_thread; ++r)
        for (int n = 0; n < per_thread; ++n) s[r][n] += of_a[r] * of_b[n];
    }
  }
}

/// sums[i] += sum_j weights[i][j] x_j over columns first .. first + columns, where a thread gives the weights of its 4
/// x 4 places. Starts with a barrier, after which the weights of the call before are overwritten.
template <int columns, class W, class T>
__device__ __forceinline__ void add_weighted(Sums<W, columns>& sums, Memory<W>& memory, const Scores<W>& weights,
                                             const Rows<T>& x, std::int64_t first, std::int64_t C) {
  __syncthreads();
  for (int r = 0; r < per_thread; ++r)
    for (int n = 0; n < per_thread; ++n) memory.weights[row_of_thread(r)][column_of_thread(n)] = weights[r][n];
  W(*rows)[columns] = memory.template rows<columns>();
  for (int begin = 0; begin < side; begin += piece) {
    if (begin > 0) __syncthreads();
    load<piece, columns>(&rows[0][0], columns, x.from(begin), first, C);
    __syncthreads();
    for (int j = 0; j < piece; ++j) {
      W of_weights[per_thread];
      for (int r = 0; r < per_thread; ++r) of_weights[r] = memory.weights[row_of_thread(r)][begin + j];
      for (int n = 0; n < columns / threads_across; ++n) {
        const W number = rows[j][column_of_thread(n)];
        for (int r = 0; r < per_thread; ++r) sums[r][n] += of_weights[r] * number;
      }
    }
  }
}

/// Writes the sums' rows times factor[r] as columns first .. first + columns of `out`.
template <int columns, class W, class T>
__device__ __forceinline__ void store(const Rows<T>& out, const Sums<W, columns>& sums, std::int64_t first,
                                      std::int64_t C, const W (&factor)[per_thread]) {
  for (int r = 0; r < per_thread; ++r) {
    const int row = row_of_thread(r);
    if (row >= out.count) continue;
    for (int n = 0; n < columns / threads_across; ++n) {
      const std::int64_t column = first + column_of_thread(n);
      if (column < C) out.first[row * out.stride + column] = narrow<T>(sums[r][n] * factor[r]);
    }
  }
}

/// How many of a thread's scores, in rows from `first` on that exist, are ones of which `is_counted` holds.
template <class W, class F>
__device__ __forceinline__ std::int64_t count(std::int64_t first, std::int64_t num_rows, const Scores<W>& s,
                                              const F& is_counted) {
  std::int64_t found = 0;
  for (int r = 0; r < per_thread; ++r)
    for (int n = 0; n < per_thread; ++n)
      if (first + row_of_thread(r) < num_rows && is_counted(s[r][n])) ++found;
  return found;
}

/// Over the 16 threads that share a row.
template <class W>
__device__ __forceinline__ W row_max(W x) {
  for (int distance = threads_across / 2; distance > 0; distance /= 2) {
    const W other = __shfl_xor_sync(whole_warp, x, distance);
    x = other > x ? other : x;
  }
  return x;
}
template <class W>
__device__ __forceinline__ W row_sum(W x) {
  for (int distance = threads_across / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(whole_warp, x, distance);
  return x;
}

/// f(columns) with as many columns as a block computes at once: scores are recomputed for each such part of a wide
/// head.
template <class W, class F>
void visit_columns(std::int64_t C, F&& f) {
  if constexpr (sizeof(W) == 4)
    if (C > 64) return f(std::integral_constant<int, max_columns>{});
  f(std::integral_constant<int, 64>{});
}

}  // namespace echelon::cuda::tiles
