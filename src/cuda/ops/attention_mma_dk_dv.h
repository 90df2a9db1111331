// dk and dv in tensor cores: a block has some keys, whose gradients stay in registers during the loop over queries,
// head by head of the group. It computes the transposed scores, which are operands of the sums without shared memory.
// For .cu files alone.
#pragma once

#include "cuda/device/pair_counter.h"
#include "cuda/ops/attention_documents.h"
#include "cuda/ops/attention_mma_gradients.h"

namespace echelon::cuda::fragments {

/// How a head of C is divided: num_warps times 16 M keys for a block, `queries` of a tile.
template <int C_, int M_, int num_warps_, int queries_>
struct KeyBlocks {
  static constexpr int C = C_, M = M_, num_threads = num_warps_ * warp_size, keys = 16 * M_ * num_warps_,
                       queries = queries_;
  static_assert(4 * queries <= num_threads);

  // Shared memory: k, v and twice q, dout, lse, delta, both bounds of ranges; the first query and the end.
  static constexpr SharedPlace key_bytes = keys * SharedRows<C>::row_bytes,
                               query_bytes = queries * SharedRows<C>::row_bytes;
  static constexpr SharedPlace first_stage = 2 * key_bytes, statistics_bytes = queries * 4;
  static constexpr SharedPlace stage_bytes = 2 * query_bytes + 4 * statistics_bytes;
  // An int: registers are few.
  static constexpr SharedPlace end_place = first_stage + 2 * stage_bytes, begin_place = end_place + 4,
                               shared_bytes = end_place + 16;
  static_assert(stage_bytes % 128 == 0);
  struct Stage {
    SharedPlace place;
    [[nodiscard]] __device__ __forceinline__ SharedRows<C> q() const { return {place}; }
    [[nodiscard]] __device__ __forceinline__ SharedRows<C> dout() const { return {place + query_bytes}; }
    [[nodiscard]] __device__ __forceinline__ SharedPlace lse() const { return place + 2 * query_bytes; }
    [[nodiscard]] __device__ __forceinline__ SharedPlace delta() const { return lse() + statistics_bytes; }
    [[nodiscard]] __device__ __forceinline__ SharedPlace begins() const { return delta() + statistics_bytes; }
    [[nodiscard]] __device__ __forceinline__ SharedPlace ends() const { return begins() + statistics_bytes; }
  };
};

template <class Blocks, Bounds bounds>
__device__ __forceinline__ void begin_stage(typename Blocks::Stage stage, const AttentionGradients& a, int b, int h,
                                            int first_query) {
  const AttentionSizes& sizes = a.sizes;
  const int width = static_cast<int>(sizes.C), thread = static_cast<int>(threadIdx.x);
  using Loads = TileLoads<Blocks::queries, Blocks::num_threads, Blocks::C>;
  Loads(sizes.queries(a.q, b, h).from(first_query), width).begin_next(stage.q());
  Loads(sizes.queries(a.dout, b, h).from(first_query), width).begin_next(stage.dout());
  if (thread < 2 * Blocks::queries) {
    const int i = thread % Blocks::queries;
    const float* const from = sizes.statistics(thread < Blocks::queries ? a.lse : a.delta, b, h) + first_query + i;
    begin_copy<4>(stage.lse() + static_cast<SharedPlace>(4 * thread), from, first_query + i < sizes.Tq);
  } else if (thread < 4 * Blocks::queries) {
    const std::int64_t i = b * sizes.Tq + min(std::int64_t{first_query} + thread % Blocks::queries, sizes.Tq - 1);
    const SharedPlace place = stage.lse() + static_cast<SharedPlace>(4 * thread);
    if (thread < 3 * Blocks::queries) {
      if (sizes.begins != nullptr) begin_copy<4>(place, sizes.begins + i, true);
    } else if constexpr (bounds == Bounds::begins_and_ends) {
      begin_copy<4>(place, sizes.ends + i, true);
    }
  }
}

/// Two columns' values.
template <class Pair = float2>
__device__ __forceinline__ Pair of_columns(SharedPlace numbers, int n) {
  return *pointer_to<Pair>(numbers + static_cast<SharedPlace>(8 * n + column_in_fragment()) * 4);
}

/// Matmuls k . q become p = e^(scale k . q - lse).
template <int M, int N>
__device__ __forceinline__ void exponentiate(Sums<M, N>& s, SharedPlace lse, float base_scale) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 of_query = of_columns(lse, n);
    const float base[2] = {of_query.x * log2_e, of_query.y * log2_e};
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = fast_exp2(fmaf(s[m][n][i], base_scale, -base[i % 2]));
  }
}
/// Zero where a query does not see the key: row r of the warp is seen from column first_seen + r on, up to num_queries.
template <int M, int N>
__device__ __forceinline__ void mask(Sums<M, N>& p, int first_seen, int num_queries) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int begin = first_seen + 16 * m + row_in_fragment(i / 2) - column_in_fragment() - i % 2,
                end = num_queries - column_in_fragment() - i % 2;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        if (8 * n < begin || 8 * n >= end) p[m][n][i] = 0;
    }
}
/// Zero where the key is before the query's range: the warp's first key is at `position`.
template <int M, int N>
__device__ __forceinline__ void mask_begins(Sums<M, N>& p, SharedPlace begins, int position) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const int2 of_query = of_columns<int2>(begins, n);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (position + 16 * m + row_in_fragment(i / 2) < (i % 2 == 0 ? of_query.x : of_query.y)) p[m][n][i] = 0;
  }
}
/// Zero where the key is not before the end of the query's range, and for queries from num_queries on.
template <int M, int N>
__device__ __forceinline__ void mask_ends(Sums<M, N>& p, SharedPlace ends, int position, int num_queries) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const int2 of_query = of_columns<int2>(ends, n);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (position + 16 * m + row_in_fragment(i / 2) >= (i % 2 == 0 ? of_query.x : of_query.y) ||
            8 * n + column_in_fragment() + i % 2 >= num_queries)
          p[m][n][i] = 0;
  }
}
/// Matmuls v . dout become ds / scale = p (v . dout - delta).
template <int M, int N>
__device__ __forceinline__ void differentiate(Sums<M, N>& dp, const Sums<M, N>& p, SharedPlace delta) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 of_query = of_columns(delta, n);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - (i % 2 == 0 ? of_query.x : of_query.y));
  }
}

// blockIdx: x the keys, those first that most queries see; y the kv head; z the sequence.
template <class Blocks, Bounds bounds>
__global__ void __launch_bounds__(Blocks::num_threads) dk_dv_kernel(AttentionGradients a) {
  constexpr int C = Blocks::C, M = Blocks::M, N = Blocks::queries;
  const AttentionSizes& sizes = a.sizes;
  const int width = static_cast<int>(sizes.C), kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int first_key = static_cast<int>(blockIdx.x) * Blocks::keys, first_row = 16 * M * warp(),
            num_queries = static_cast<int>(sizes.Tq);
  const SharedRows<C> k = {0}, v = {Blocks::key_bytes}, my_k = k.from(first_row), my_v = v.from(first_row);

  const int first_head = static_cast<int>(sizes.first_of(kv_head)),
            end_head = static_cast<int>(sizes.first_of(kv_head + 1));
  using Loads = TileLoads<Blocks::keys, Blocks::num_threads, C>;
  Loads(sizes.keys(a.k, b, kv_head).from(first_key), width).begin_next(k);
  Loads(sizes.keys(a.v, b, kv_head).from(first_key), width).begin_next(v);
  typename Blocks::Stage stage = {Blocks::first_stage};
  const int begin = static_cast<int>(bounds == Bounds::begins_and_ends ? first_seeing(sizes, b, first_key)
                                                                       : sizes.first_seeing(first_key)),
            end = static_cast<int>(end_seeing(sizes, b, first_key + Blocks::keys - 1));
  if (threadIdx.x == 0) *pointer_to<int>(Blocks::end_place) = end;
  if constexpr (bounds == Bounds::begins_and_ends)
    if (threadIdx.x == 0) *pointer_to<int>(Blocks::begin_place) = begin;
  if (first_head < end_head && begin < end) begin_stage<Blocks, bounds>(stage, a, b, first_head, begin);
  close_group_of_copies();

  Sums<M, C> dk, dv;
  clear<M, C>(dk);
  clear<M, C>(dv);
  int h = begin < end ? first_head : end_head, first_query = begin;
  while (h < end_head) {
    wait_for_copies_but_last<0>();
    __syncthreads();  // the stage has arrived, and no thread uses the other one any more
    int next_head = h, next_query = first_query + N;
    if (next_query >= *pointer_to<int>(Blocks::end_place)) {
      ++next_head;
      next_query = bounds == Bounds::begins_and_ends ? *pointer_to<int>(Blocks::begin_place)
                                                     : static_cast<int>(sizes.first_seeing(first_key));
    }
    const typename Blocks::Stage other = {2 * Blocks::first_stage + Blocks::stage_bytes - stage.place};
    if (next_head < end_head) begin_stage<Blocks, bounds>(other, a, b, next_head, next_query);
    close_group_of_copies();

    // The column from which the warp's first key is seen by a causal mask.
    const int first_seen = first_key + first_row - static_cast<int>(sizes.Tk - sizes.Tq) - first_query;
    const int position = first_key + first_row;
    const auto bound_at = [](SharedPlace all, int column) {
      return *pointer_to<int>(all + static_cast<SharedPlace>(4 * column));
    };
    const bool ends_later =
        bounds == Bounds::begins_and_ends ? bound_at(stage.ends(), N - 1) > position : first_seen < N;
    if (ends_later && (sizes.begins == nullptr || bound_at(stage.begins(), 0) < position + 16 * M)) {
      const auto hide = [&](Sums<M, N>& x) {
        if constexpr (bounds == Bounds::begins_and_ends) {
          if (bound_at(stage.ends(), 0) < position + 16 * M || first_query + N > num_queries)
            mask_ends<M, N>(x, stage.ends(), position, num_queries - first_query);
        } else if (first_seen + 16 * M > 1 || first_query + N > num_queries) {
          mask<M, N>(x, first_seen, num_queries - first_query);
        }
        if (sizes.begins != nullptr && bound_at(stage.begins(), N - 1) > position)
          mask_begins<M, N>(x, stage.begins(), position);
      };
      Sums<M, N> p, ds;
      Weights<M, N> weights;
      multiply_transposed<M, N>(p, my_k, stage.q());
      exponentiate<M, N>(p, stage.lse(), a.base_scale);
      hide(p);
      note_pairs<PairsOf::keys>(
          [&] { return count_left<M, N>(static_cast<int>(sizes.Tk) - first_key - first_row, hide); });
      narrow<M, N>(weights, p);
      add_weighted<M, N>(dv, weights, stage.dout());
      multiply_transposed<M, N>(ds, my_v, stage.dout());
      differentiate<M, N>(ds, p, stage.delta());
      narrow<M, N>(weights, ds);
      add_weighted<M, N>(dk, weights, stage.q());
    }
    h = next_head;
    first_query = next_query;
    stage = other;
  }

  wait_for_copies_but_last<0>();  // of k and v, if no head reads them
  __syncthreads();
  float factor[M][2];
  set_all(factor, a.scale);
  store<M, C>(sizes.keys(a.dk, b, kv_head).from(first_key + first_row), width, dk, factor, my_k);
  set_all(factor, 1.0F);
  store<M, C>(sizes.keys(a.dv, b, kv_head).from(first_key + first_row), width, dv, factor, my_v);
}

}  // namespace echelon::cuda::fragments
