// Attention in tensor cores, FlashAttention-2's way (Dao 2023, arXiv:2307.08691): a block has 64 M queries of one head,
// a warp 16 M of them with their sums in registers; keys and values come by in tiles of 64. Weights are rounded to
// bfloat16 for the matmul with v; sums, maxima and lse are float32.
#include "cuda/device/launch.h"
#include "cuda/device/pair_counter.h"
#include "cuda/ops/attention.h"
#include "cuda/ops/attention_fragments.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

using namespace fragments;

constexpr int num_warps = 4, num_threads = num_warps * warp_size;
constexpr int tile_keys = 64;

struct Forward {
  const __nv_bfloat16 *q, *k, *v;
  __nv_bfloat16* out;
  float* lse;
  float base_scale;  // positive: scale log2 e, since e^(scale s) = 2^(s scale log2 e)
  AttentionSizes sizes;
};

/// Keys and values of one head pass through three tiles in turn: k_0, v_0, k_1, v_1, ... While one is processed, the
/// next two are being copied.
template <int C>
class KeysAndValues {
 public:
  using Loads = TileLoads<tile_keys, num_threads, C>;
  __device__ __forceinline__ KeysAndValues(const Loads& keys, const Loads& values, bool has_any,
                                           const SharedRows<C>& ring)
      : keys_(keys), values_(values), ring_(ring.place) {
    begin(keys_, ring_, has_any);
    begin(values_, ring_ + tile_bytes, has_any);
  }
  /// Waits for the next tile, in cyclic order; all warps are done with the previous one. `has_more`: more keys follow.
  [[nodiscard]] __device__ __forceinline__ SharedRows<C> take_keys(bool has_more) { return take(keys_, has_more); }
  [[nodiscard]] __device__ __forceinline__ SharedRows<C> take_values(bool has_more) { return take(values_, has_more); }

 private:
  static constexpr SharedPlace tile_bytes = tile_keys * SharedRows<C>::row_bytes;

  static __device__ __forceinline__ void begin(Loads& loads, SharedPlace tile, bool exists) {
    if (exists) loads.begin_next({tile});
    close_group_of_copies();
  }
  [[nodiscard]] __device__ __forceinline__ SharedRows<C> take(Loads& loads, bool has_more) {
    wait_for_copies_but_last<1>();
    __syncthreads();
    begin(loads, ring_ + (taken_ == 0 ? 2 * tile_bytes : taken_ - tile_bytes), has_more);
    const SharedRows<C> tile = {ring_ + taken_};
    taken_ = taken_ == 2 * tile_bytes ? 0 : taken_ + tile_bytes;
    return tile;
  }

  Loads keys_, values_;
  SharedPlace ring_, taken_ = 0;
};

/// The running maxima and sums of a warp's rows, of which a lane has two per fragment.
template <int M>
struct RunningSoftmax {
  float base_scale;
  float max[M][2], sum[M][2];  // the sum of this lane's columns alone

  __device__ __forceinline__ explicit RunningSoftmax(float scale) : base_scale(scale) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        max[m][r] = -INFINITY;
        sum[m][r] = 0;
      }
  }
  /// What the exponents of row r are taken relative to; nothing seen yet: all weights are 2^-inf.
  [[nodiscard]] __device__ __forceinline__ float base(int m, int r) const {
    return max[m][r] == -INFINITY ? 0 : max[m][r] * base_scale;
  }

  /// Scores become weights, and `out` what it would be had it been summed with them.
  template <int C>
  __device__ __forceinline__ void add(Sums<M, tile_keys>& s, Sums<M, C>& out) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float largest = max[m][r];
#pragma unroll
        for (int n = 0; n < tile_keys / 8; ++n) largest = fmaxf(largest, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(whole_warp, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(whole_warp, largest, 2));
        const float before = max[m][r] * base_scale;
        max[m][r] = largest;
        const float base_now = base(m, r), correction = fast_exp2(before - base_now);
        float sum_now = 0;
#pragma unroll
        for (int n = 0; n < tile_keys / 8; ++n)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            s[m][n][i] = fast_exp2(fmaf(s[m][n][i], base_scale, -base_now));
            sum_now += s[m][n][i];
          }
        sum[m][r] = fmaf(sum[m][r], correction, sum_now);
#pragma unroll
        for (int n = 0; n < C / 8; ++n) {
          out[m][n][2 * r] *= correction;
          out[m][n][2 * r + 1] *= correction;
        }
      }
  }
  /// Over the four lanes of a row.
  [[nodiscard]] __device__ __forceinline__ float whole_sum(int m, int r) const {
    float x = sum[m][r];
    x += __shfl_xor_sync(whole_warp, x, 1);
    return x + __shfl_xor_sync(whole_warp, x, 2);
  }
};

// Blocks of one head are next to each other, since they read the same keys, and the last queries come first, since they
// see most of them.
template <int C, int M, Bounds bounds>
__global__ void __launch_bounds__(num_threads, 2) attention_kernel(Forward a) {
  constexpr int block_queries = 16 * M * num_warps;
  const AttentionSizes& sizes = a.sizes;
  const int width = static_cast<int>(sizes.C), h = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * block_queries, first_row = 16 * M * warp();
  // Seen by any query.
  const std::int64_t last_query = min(first_query + std::int64_t{block_queries}, sizes.Tq) - 1;
  const int num_keys =
      static_cast<int>(bounds == Bounds::begins_and_ends ? sizes.end_visible(b, last_query)
                                                         : min(sizes.num_visible(last_query), sizes.Tk));
  // And not those before.
  const int begin = static_cast<int>(sizes.first_visible(b, first_query)) / tile_keys * tile_keys;
  const SharedRows<C> q = {0}, my_q = q.from(first_row);

  TileLoads<block_queries, num_threads, C>(sizes.queries(a.q, b, h).from(first_query), width).begin_next(q);
  KeysAndValues<C> keys_and_values({sizes.keys(a.k, b, sizes.kv_head(h)).from(begin), width},
                                   {sizes.keys(a.v, b, sizes.kv_head(h)).from(begin), width}, begin < num_keys,
                                   q.from(block_queries));
  Sums<M, C> out;
  clear<M, C>(out);
  RunningSoftmax<M> softmax(a.base_scale);
  const int num_visible = static_cast<int>(sizes.num_visible(first_query + first_row));  // to the warp's first query
  const WarpRanges ranges = ranges_of_warp<M>(sizes, b, first_query + first_row);
  for (int first_key = begin; first_key < num_keys; first_key += tile_keys) {
    const bool has_more = first_key + tile_keys < num_keys;
    // By any query of this warp.
    const int end = bounds == Bounds::begins_and_ends ? ranges.last_end : num_visible + 16 * M - 1;
    const bool is_seen = first_key < end && ranges.first_begin < first_key + tile_keys;
    const SharedRows<C> k = keys_and_values.take_keys(has_more);
    Weights<M, tile_keys> weights;
    if (is_seen) {
      Sums<M, tile_keys> s;
      multiply_transposed<M, tile_keys>(s, my_q, k);
      if constexpr (bounds == Bounds::begins_and_ends) {
        if (ranges.first_end < first_key + tile_keys)
          mask_ends<M, tile_keys>(s, sizes, b, first_query + first_row, first_key, -INFINITY);
      } else if (min(num_visible, num_keys) < first_key + tile_keys) {
        mask_keys<M, tile_keys>(s, num_visible - first_key, num_keys - first_key, -INFINITY);
      }
      if (ranges.last_begin > first_key)
        mask_documents<M, tile_keys>(s, sizes, b, first_query + first_row, first_key, -INFINITY);
      note_pairs<PairsOf::forward>([&] {
        const int num_rows = static_cast<int>(sizes.Tq) - first_query - first_row;
        return count<M, tile_keys>(s, num_rows, [](float score) { return score != -INFINITY; });
      });
      softmax.template add<C>(s, out);
      narrow<M, tile_keys>(weights, s);
    }
    const SharedRows<C> v = keys_and_values.take_values(has_more);
    if (is_seen) add_weighted<M, tile_keys>(out, weights, v);
  }

  wait_for_copies_but_last<0>();  // of q, if there were no keys
  __syncthreads();
  const Rows<__nv_bfloat16> rows = sizes.queries(a.out, b, h).from(first_query + first_row);
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = softmax.whole_sum(m, r);
      factor[m][r] = sum == 0 ? 0 : 1 / sum;
      const int row = 16 * m + row_in_fragment(r);
      if (column_in_fragment() == 0 && row < rows.count)
        sizes.statistics(a.lse, b, h)[first_query + first_row + row] =
            sum == 0 ? -INFINITY : softmax.base(m, r) * ln_2 + logf(sum);
    }
  store<M, C>(rows, width, out, factor, my_q);
}

template <int C_, int M_>
struct Width {
  static constexpr int C = C_, M = M_, queries = 16 * M * num_warps;
  static constexpr std::int64_t shared_bytes = std::int64_t{queries + 3 * tile_keys} * C * sizeof(__nv_bfloat16);
};

/// Calls f with the kernel for heads of C; false, if there is none for which a block may have the shared memory.
template <class F>
bool visit_width(std::int64_t C, std::int64_t most_shared_bytes, F&& f) {
  const auto visit = [&]<class W>(W width) {
    if (C > W::C || W::shared_bytes > most_shared_bytes) return false;
    f(width);
    return true;
  };
  return visit(Width<64, 2>()) || visit(Width<128, 2>()) || visit(Width<256, 1>());
}

template <int C, int M>
void start(Width<C, M> /*width*/, const AttentionArgs& args, const AttentionSizes& sizes, cudaStream_t stream) {
  using W = Width<C, M>;
  launch(
      {.num_blocks = blocks_for(sizes.Tq, W::queries),
       .num_threads = num_threads,
       .num_blocks_y = sizes.H,
       .num_blocks_z = sizes.B,
       .shared_bytes = W::shared_bytes,
       .stream = stream},
      sizes.ends == nullptr ? attention_kernel<C, M, Bounds::begins> : attention_kernel<C, M, Bounds::begins_and_ends>,
      Forward{numbers<bfloat16>(args.q), numbers<bfloat16>(args.k), numbers<bfloat16>(args.v),
              numbers<bfloat16>(args.out), numbers<float>(args.lse), static_cast<float>(args.scale) * log2_e, sizes});
}

}  // namespace

bool mma_attention(const AttentionArgs& args, std::int64_t most_shared_bytes, cudaStream_t stream) {
  const AttentionSizes sizes = sizes_of(args);
  if (args.q.dtype != DType::bfloat16 || sizes.C % chunk_size != 0 || args.scale <= 0 || args.soft_cap > 0)
    return false;
  return visit_width(sizes.C, most_shared_bytes, [&](auto width) { start(width, args, sizes, stream); });
}

std::int64_t widest_mma_head(std::int64_t most_shared_bytes) {
  std::int64_t widest = 0;
  for (const std::int64_t C : {64, 128, 256})
    if (visit_width(C, most_shared_bytes, [](auto /*width*/) {})) widest = C;
  return widest;
}

}  // namespace echelon::cuda
