// Attention's gradients for heads of any width, in every format. p_ij = e^(s_ij - lse_i) is recomputed (Dao et al.
// 2022, arXiv:2205.14135):
//     delta_i = dout_i . out_i                ds_ij = p_ij (dout_i . v_j - delta_i)
//     dq_i = scale sum_j ds_ij k_j            dk_j = scale sum_i ds_ij q_i            dv_j = sum_i p_ij dout_i
// One pass has a block for 64 queries, which also writes their delta; the next a block for 64 keys, which goes along
// the queries that see them, head by head of the group. So every sum belongs to one block and has one order.
#include "cuda/device/launch.h"
#include "cuda/device/pair_counter.h"
#include "cuda/ops/attention.h"
#include "cuda/ops/attention_documents.h"
#include "cuda/ops/attention_tiles.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

template <class T>
struct Backward {
  const T *q, *k, *v, *out, *dout;
  const Wide<T>* lse;
  T *dq, *dk, *dv;
  Wide<T>* delta;
  Wide<T> scale, soft_cap;
  AttentionSizes sizes;
};

/// delta of a thread's rows of a tile: the 16 threads of a row take its columns alternately. `dout` and `out` have the
/// rows from the tile on.
template <class T>
__device__ __forceinline__ void sum_products(Wide<T> (&delta)[tiles::per_thread], const Rows<const T>& dout,
                                             const Rows<const T>& out, std::int64_t C) {
  for (int r = 0; r < tiles::per_thread; ++r) {
    const std::int64_t row = tiles::row_of_thread(r);
    Wide<T> sum = 0;
    if (row < out.count)
      for (std::int64_t c = tiles::column_of_thread(0); c < C; c += tiles::threads_across)
        sum += widen(dout.first[row * dout.stride + c]) * widen(out.first[row * out.stride + c]);
    delta[r] = tiles::row_sum(sum);
  }
}

/// What scores are multiplied by, and their soft cap or 0.
template <class W>
struct ScoreScale {
  W scale, soft_cap;
};

/// Matmuls with q and with dout become weights p and scale ds.
template <class W>
__device__ __forceinline__ void differentiate(W& s, W& dp, bool is_visible, W lse, W delta, ScoreScale<W> by) {
  const W share = by.soft_cap > 0 ? tanh(s * by.scale / by.soft_cap) : W(0);  // of the cap
  const W p = is_visible ? exp((by.soft_cap > 0 ? by.soft_cap * share : s * by.scale) - lse) : W(0);
  s = p;
  dp = is_visible ? p * (dp - delta) * by.scale * (1 - share * share) : W(0);
}

template <class W>
__device__ __forceinline__ void set_ones(W (&factor)[tiles::per_thread]) {
  for (W& number : factor) number = 1;
}

// blockIdx: x the keys' tile, y the kv head, z the batch and the part of the head's width.
template <class T, int columns>
__global__ void __launch_bounds__(tiles::num_threads, 1) dk_dv_kernel(Backward<T> a) {
  using W = Wide<T>;
  const AttentionSizes& sizes = a.sizes;
  tiles::Memory<W>& memory = *dynamic_shared<tiles::Memory<W>>();
  const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * tiles::side, kv_head = blockIdx.y;
  const std::int64_t b = blockIdx.z % sizes.B, first_column = blockIdx.z / sizes.B * columns;
  const Rows<const T> k = sizes.keys(a.k, b, kv_head).from(first_key), v = sizes.keys(a.v, b, kv_head).from(first_key);

  const std::int64_t begin = first_seeing(sizes, b, first_key), end = end_seeing(sizes, b, first_key + tiles::side - 1);
  tiles::Sums<W, columns> dk = {}, dv = {};
  for (std::int64_t h = sizes.first_of(kv_head); h < sizes.first_of(kv_head + 1); ++h) {
    const W *const lse = sizes.statistics(a.lse, b, h), *const delta = sizes.statistics(a.delta, b, h);
    for (std::int64_t first_query = begin; first_query < end; first_query += tiles::side) {
      const Rows<const T> q = sizes.queries(a.q, b, h).from(first_query),
                          dout = sizes.queries(a.dout, b, h).from(first_query);
      tiles::Scores<W> s, dp;
      tiles::products(s, memory, k, q, sizes.C);
      tiles::products(dp, memory, v, dout, sizes.C);
      for (int n = 0; n < tiles::per_thread; ++n) {
        const std::int64_t i = first_query + tiles::column_of_thread(n);
        const bool exists = i < sizes.Tq;
        const W lse_i = exists ? lse[i] : W(0), delta_i = exists ? delta[i] : W(0);
        const std::int64_t first_visible = sizes.first_visible(b, i), end_visible = sizes.end_visible(b, i);
        for (int r = 0; r < tiles::per_thread; ++r) {
          const std::int64_t j = first_key + tiles::row_of_thread(r);
          differentiate(s[r][n], dp[r][n], exists && first_visible <= j && j < end_visible, lse_i, delta_i,
                        ScoreScale<W>{a.scale, a.soft_cap});
        }
      }
      note_pairs<PairsOf::keys>(
          [&] { return first_column == 0 ? tiles::count(first_key, sizes.Tk, s, [](W p) { return p > 0; }) : 0; });
      tiles::add_weighted<columns>(dv, memory, s, dout, first_column, sizes.C);
      tiles::add_weighted<columns>(dk, memory, dp, q, first_column, sizes.C);
    }
  }
  W ones[tiles::per_thread];
  set_ones(ones);
  tiles::store<columns>(sizes.keys(a.dk, b, kv_head).from(first_key), dk, first_column, sizes.C, ones);
  tiles::store<columns>(sizes.keys(a.dv, b, kv_head).from(first_key), dv, first_column, sizes.C, ones);
}

// blockIdx: x the queries' tile, the last first since it sees most keys; y the head; z the batch and the part of the
// head's width.
template <class T, int columns>
__global__ void __launch_bounds__(tiles::num_threads, 1) dq_kernel(Backward<T> a) {
  using W = Wide<T>;
  const AttentionSizes& sizes = a.sizes;
  tiles::Memory<W>& memory = *dynamic_shared<tiles::Memory<W>>();
  const std::int64_t first_query = (static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x) * tiles::side,
                     h = blockIdx.y;
  const std::int64_t b = blockIdx.z % sizes.B, first_column = blockIdx.z / sizes.B * columns;
  const Rows<const T> q = sizes.queries(a.q, b, h).from(first_query),
                      dout = sizes.queries(a.dout, b, h).from(first_query);
  const Rows<const T> keys = sizes.keys(a.k, b, sizes.kv_head(h)), values = sizes.keys(a.v, b, sizes.kv_head(h));
  W lse[tiles::per_thread], delta[tiles::per_thread];
  for (int r = 0; r < tiles::per_thread; ++r) {
    const std::int64_t i = first_query + tiles::row_of_thread(r);
    lse[r] = i < sizes.Tq ? sizes.statistics(a.lse, b, h)[i] : W(0);
  }
  sum_products(delta, dout, sizes.queries(a.out, b, h).from(first_query), sizes.C);
  if (first_column == 0 && tiles::column_of_thread(0) == 0)
    for (int r = 0; r < tiles::per_thread; ++r)
      if (const std::int64_t i = first_query + tiles::row_of_thread(r); i < sizes.Tq)
        sizes.statistics(a.delta, b, h)[i] = delta[r];

  tiles::Sums<W, columns> dq = {};
  const std::int64_t last_query = min(first_query + tiles::side, sizes.Tq) - 1, end = sizes.end_visible(b, last_query);
  for (std::int64_t first_key = sizes.first_visible(b, first_query); first_key < end; first_key += tiles::side) {
    tiles::Scores<W> s, dp;
    tiles::products(s, memory, q, keys.from(first_key), sizes.C);
    tiles::products(dp, memory, dout, values.from(first_key), sizes.C);
    for (int r = 0; r < tiles::per_thread; ++r) {
      const std::int64_t i = first_query + tiles::row_of_thread(r), first_visible = sizes.first_visible(b, i),
                         end_visible = sizes.end_visible(b, i);
      for (int n = 0; n < tiles::per_thread; ++n) {
        const std::int64_t j = first_key + tiles::column_of_thread(n);
        differentiate(s[r][n], dp[r][n], i < sizes.Tq && first_visible <= j && j < end_visible, lse[r], delta[r],
                      ScoreScale<W>{a.scale, a.soft_cap});
      }
    }
    note_pairs<PairsOf::queries>(
        [&] { return first_column == 0 ? tiles::count(first_query, sizes.Tq, s, [](W p) { return p > 0; }) : 0; });
    tiles::add_weighted<columns>(dq, memory, dp, keys.from(first_key), first_column, sizes.C);
  }
  W ones[tiles::per_thread];
  set_ones(ones);
  tiles::store<columns>(sizes.queries(a.dq, b, h).from(first_query), dq, first_column, sizes.C, ones);
}

}  // namespace

void general_attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream) {
  const AttentionSizes sizes = sizes_of(args);
  visit_numbers(args.q.dtype, [&]<class T>(T) {
    using D = on_device<T>;
    using W = Wide<D>;
    const Backward<D> backward = {numbers<T>(args.q),
                                  numbers<T>(args.k),
                                  numbers<T>(args.v),
                                  numbers<T>(args.out),
                                  numbers<T>(args.dout),
                                  numbers<W>(args.lse),
                                  numbers<T>(args.dq),
                                  numbers<T>(args.dk),
                                  numbers<T>(args.dv),
                                  numbers<W>(args.delta),
                                  static_cast<W>(args.scale),
                                  static_cast<W>(args.soft_cap),
                                  sizes};
    tiles::visit_columns<W>(sizes.C, [&]<int columns>(std::integral_constant<int, columns>) {
      Launch how = {.num_blocks = blocks_for(sizes.Tq, tiles::side),
                    .num_threads = tiles::num_threads,
                    .num_blocks_y = sizes.H,
                    .num_blocks_z = sizes.B * blocks_for(sizes.C, columns),
                    .shared_bytes = sizeof(tiles::Memory<W>),
                    .stream = stream};
      launch(how, dq_kernel<D, columns>, backward);
      how.num_blocks = blocks_for(sizes.Tk, tiles::side);
      how.num_blocks_y = sizes.K;
      launch(how, dk_dv_kernel<D, columns>, backward);
    });
  });
}

}  // namespace echelon::cuda
