// dq and delta in tensor cores: a block has some queries, and loops over keys. For .cu files alone.
#pragma once

#include "cuda/device/pair_counter.h"
#include "cuda/ops/attention_documents.h"
#include "cuda/ops/attention_mma_gradients.h"

namespace echelon::cuda::fragments {

template <int C_, int M_, int num_warps_, int keys_>
struct QueryBlocks {
  static constexpr int C = C_, M = M_, num_threads = num_warps_ * warp_size, queries = 16 * M_ * num_warps_,
                       keys = keys_;

  // Shared memory: q, dout and twice k, v.
  static constexpr SharedPlace query_bytes = queries * SharedRows<C>::row_bytes,
                               key_bytes = keys * SharedRows<C>::row_bytes;
  static constexpr SharedPlace first_stage = 2 * query_bytes, stage_bytes = 2 * key_bytes,
                               shared_bytes = first_stage + 2 * stage_bytes;
};

/// Matmuls q . k become ds / scale = p (dout . v - delta) with p = e^(scale q . k - lse).
template <int M, int N>
__device__ __forceinline__ void differentiate(Sums<M, N>& s, const Sums<M, N>& dp, const float (&base)[M][2],
                                              const float (&delta)[M][2], float base_scale) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[m][n][i] = fast_exp2(fmaf(s[m][n][i], base_scale, -base[m][i / 2])) * (dp[m][n][i] - delta[m][i / 2]);
}

/// delta of query i, dout . out, of which the four lanes of a row take chunks alternately; 0 if it does not exist.
__device__ __forceinline__ float product_of_rows(const AttentionGradients& a, int b, int h, int i) {
  const AttentionSizes& sizes = a.sizes;
  float sum = 0;
  if (i < sizes.Tq) {
    const __nv_bfloat16 *const dout = sizes.queries(a.dout, b, h).from(i).first,
                               *const out = sizes.queries(a.out, b, h).from(i).first;
    for (int c = lane() % 4 * chunk_size; c < static_cast<int>(sizes.C); c += 4 * chunk_size) {
      const auto dout_c = widen(load_pack<chunk_size>(dout + c)), out_c = widen(load_pack<chunk_size>(out + c));
#pragma unroll
      for (int j = 0; j < chunk_size; ++j) sum += dout_c.at[j] * out_c.at[j];
    }
  }
  sum += __shfl_xor_sync(whole_warp, sum, 1);
  return sum + __shfl_xor_sync(whole_warp, sum, 2);
}

// blockIdx: x the queries, the last first since they see most keys; y the head; z the sequence.
template <class Blocks, Bounds bounds>
__global__ void __launch_bounds__(Blocks::num_threads) dq_kernel(AttentionGradients a) {
  constexpr int C = Blocks::C, M = Blocks::M, N = Blocks::keys;
  const AttentionSizes& sizes = a.sizes;
  const int width = static_cast<int>(sizes.C), h = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Blocks::queries, first_row = 16 * M * warp();
  // Seen by any query.
  const std::int64_t last_query = min(first_query + std::int64_t{Blocks::queries}, sizes.Tq) - 1;
  const int num_keys =
      static_cast<int>(bounds == Bounds::begins_and_ends ? sizes.end_visible(b, last_query)
                                                         : min(sizes.num_visible(last_query), sizes.Tk));
  const int begin = static_cast<int>(sizes.first_visible(b, first_query)) / N * N;  // and not those before
  const SharedRows<C> q = {0}, dout = {Blocks::query_bytes}, my_q = q.from(first_row), my_dout = dout.from(first_row);

  using QueryLoads = TileLoads<Blocks::queries, Blocks::num_threads, C>;
  using KeyLoads = TileLoads<N, Blocks::num_threads, C>;
  QueryLoads(sizes.queries(a.q, b, h).from(first_query), width).begin_next(q);
  QueryLoads(sizes.queries(a.dout, b, h).from(first_query), width).begin_next(dout);
  KeyLoads keys(sizes.keys(a.k, b, sizes.kv_head(h)).from(begin), width),
      values(sizes.keys(a.v, b, sizes.kv_head(h)).from(begin), width);
  SharedPlace stage = Blocks::first_stage;
  keys.begin_next({stage});
  values.begin_next({stage + Blocks::key_bytes});
  close_group_of_copies();

  float base[M][2], delta[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = first_query + first_row + 16 * m + row_in_fragment(r);
      base[m][r] = i < sizes.Tq ? sizes.statistics(a.lse, b, h)[i] * log2_e : 0;
      delta[m][r] = product_of_rows(a, b, h, i);
      if (column_in_fragment() == 0 && i < sizes.Tq) sizes.statistics(a.delta, b, h)[i] = delta[m][r];
    }

  Sums<M, C> dq;
  clear<M, C>(dq);
  const int num_visible = static_cast<int>(sizes.num_visible(first_query + first_row));  // to the warp's first query
  const WarpRanges ranges = ranges_of_warp<M>(sizes, b, first_query + first_row);
  for (int first_key = begin; first_key < num_keys; first_key += N) {
    wait_for_copies_but_last<0>();
    __syncthreads();  // the stage has arrived, and no thread uses the other one any more
    const SharedPlace other = 2 * Blocks::first_stage + Blocks::stage_bytes - stage;
    if (first_key + N < num_keys) {
      keys.begin_next({other});
      values.begin_next({other + Blocks::key_bytes});
    }
    close_group_of_copies();
    const int end = bounds == Bounds::begins_and_ends ? ranges.last_end : num_visible + 16 * M - 1;
    if (first_key < end && ranges.first_begin < first_key + N) {
      const auto hide = [&](Sums<M, N>& x) {
        if constexpr (bounds == Bounds::begins_and_ends) {
          if (ranges.first_end < first_key + N) mask_ends<M, N>(x, sizes, b, first_query + first_row, first_key, 0);
        } else if (min(num_visible, num_keys) < first_key + N) {
          mask_keys<M, N>(x, num_visible - first_key, num_keys - first_key, 0);
        }
        if (ranges.last_begin > first_key) mask_documents<M, N>(x, sizes, b, first_query + first_row, first_key, 0);
      };
      const SharedRows<C> k = {stage}, v = {stage + Blocks::key_bytes};
      Sums<M, N> s, dp;
      Weights<M, N> weights;
      multiply_transposed<M, N>(s, my_q, k);
      multiply_transposed<M, N>(dp, my_dout, v);
      differentiate<M, N>(s, dp, base, delta, a.base_scale);
      hide(s);
      note_pairs<PairsOf::queries>(
          [&] { return count_left<M, N>(static_cast<int>(sizes.Tq) - first_query - first_row, hide); });
      narrow<M, N>(weights, s);
      add_weighted<M, N>(dq, weights, k);
    }
    stage = other;
  }
  wait_for_copies_but_last<0>();  // of q, if there were no keys
  __syncthreads();
  float factor[M][2];
  set_all(factor, a.scale);
  store<M, C>(sizes.queries(a.dq, b, h).from(first_query + first_row), width, dq, factor, my_q);
}

}  // namespace echelon::cuda::fragments
