// Attention of heads of any width, in every dtype (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023,
// arXiv:2307.08691). A block has 64 queries of one head and loops over the keys that they see, tile by tile, with a
// running maximum m and sum l of each row:
//
//     m' = max(m, max_j s_j)    l' = l e^(m - m') + sum_j e^(s_j - m')
//     out' = out e^(m - m') + sum_j e^(s_j - m') v_j
#include "cuda/device/launch.h"
#include "cuda/device/pair_counter.h"
#include "cuda/ops/attention.h"
#include "cuda/ops/attention_tiles.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

template <class T>
struct Forward {
  const T *q, *k, *v;
  T* out;
  Wide<T>* lse;
  Wide<T> scale, soft_cap;
  AttentionSizes sizes;
};

template <class W>
struct RunningSoftmax {
  W max[tiles::per_thread], sum[tiles::per_thread];  // the sum of this thread's columns alone

  __device__ __forceinline__ RunningSoftmax() {
    for (int r = 0; r < tiles::per_thread; ++r) {
      max[r] = -INFINITY;
      sum[r] = 0;
    }
  }
  /// Scores become weights; what was summed before is to be multiplied by `correction`.
  __device__ __forceinline__ void add(tiles::Scores<W>& s, W (&correction)[tiles::per_thread]) {
    for (int r = 0; r < tiles::per_thread; ++r) {
      W largest = max[r];
      for (int n = 0; n < tiles::per_thread; ++n) largest = s[r][n] > largest ? s[r][n] : largest;
      largest = tiles::row_max(largest);
      const W base = largest == -INFINITY ? W(0) : largest;  // nothing seen yet: all weights are e^-inf
      correction[r] = exp(max[r] - base);
      max[r] = largest;
      sum[r] *= correction[r];
      for (int n = 0; n < tiles::per_thread; ++n) {
        s[r][n] = exp(s[r][n] - base);
        sum[r] += s[r][n];
      }
    }
  }
};

// blockIdx: x the queries' tile, the last first since it sees most keys; y the head; z the batch and the part of the
// head's width.
template <class T, int columns>
__global__ void __launch_bounds__(tiles::num_threads, 1) attention_kernel(Forward<T> a) {
  using W = Wide<T>;
  const AttentionSizes& sizes = a.sizes;
  tiles::Memory<W>& memory = *dynamic_shared<tiles::Memory<W>>();
  const std::int64_t first_query = (static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x) * tiles::side,
                     h = blockIdx.y;
  const std::int64_t b = blockIdx.z % sizes.B, first_column = blockIdx.z / sizes.B * columns;
  const Rows<const T> q = sizes.queries(a.q, b, h).from(first_query), k = sizes.keys(a.k, b, sizes.kv_head(h)),
                      v = sizes.keys(a.v, b, sizes.kv_head(h));

  tiles::Sums<W, columns> out = {};
  RunningSoftmax<W> softmax;
  const std::int64_t last_query = min(first_query + tiles::side, sizes.Tq) - 1, end = sizes.end_visible(b, last_query);
  for (std::int64_t first_key = sizes.first_visible(b, first_query); first_key < end; first_key += tiles::side) {
    tiles::Scores<W> s;
    tiles::products(s, memory, q, k.from(first_key), sizes.C);
    for (int r = 0; r < tiles::per_thread; ++r) {
      const std::int64_t i = first_query + tiles::row_of_thread(r), first_visible = sizes.first_visible(b, i),
                         end_visible = sizes.end_visible(b, i);
      for (int n = 0; n < tiles::per_thread; ++n) {
        const std::int64_t j = first_key + tiles::column_of_thread(n);
        const W scaled = s[r][n] * a.scale, score = a.soft_cap > 0 ? a.soft_cap * tanh(scaled / a.soft_cap) : scaled;
        s[r][n] = first_visible <= j && j < end_visible ? score : W(-INFINITY);
      }
    }
    note_pairs<PairsOf::forward>([&] {
      return first_column == 0 ? tiles::count(first_query, sizes.Tq, s, [](W score) { return score != -INFINITY; }) : 0;
    });
    W correction[tiles::per_thread];
    softmax.add(s, correction);
    for (int r = 0; r < tiles::per_thread; ++r)
      for (W& number : out[r]) number *= correction[r];
    tiles::add_weighted<columns>(out, memory, s, v.from(first_key), first_column, sizes.C);
  }

  W factor[tiles::per_thread];
  W* const lse = sizes.statistics(a.lse, b, h);
  for (int r = 0; r < tiles::per_thread; ++r) {
    const W sum = tiles::row_sum(softmax.sum[r]);
    factor[r] = sum == 0 ? W(0) : 1 / sum;
    const std::int64_t i = first_query + tiles::row_of_thread(r);
    if (first_column == 0 && tiles::column_of_thread(0) == 0 && i < sizes.Tq)
      lse[i] = sum == 0 ? W(-INFINITY) : softmax.max[r] + log(sum);
  }
  tiles::store<columns>(sizes.queries(a.out, b, h).from(first_query), out, first_column, sizes.C, factor);
}

}  // namespace

void general_attention(const AttentionArgs& args, cudaStream_t stream) {
  const AttentionSizes sizes = sizes_of(args);
  visit_numbers(args.q.dtype, [&]<class T>(T) {
    using D = on_device<T>;
    using W = Wide<D>;
    const Forward<D> forward = {numbers<T>(args.q),
                                numbers<T>(args.k),
                                numbers<T>(args.v),
                                numbers<T>(args.out),
                                numbers<W>(args.lse),
                                static_cast<W>(args.scale),
                                static_cast<W>(args.soft_cap),
                                sizes};
    tiles::visit_columns<W>(sizes.C, [&]<int columns>(std::integral_constant<int, columns>) {
      launch({.num_blocks = blocks_for(sizes.Tq, tiles::side),
              .num_threads = tiles::num_threads,
              .num_blocks_y = sizes.H,
              .num_blocks_z = sizes.B * blocks_for(sizes.C, columns),
              .shared_bytes = sizeof(tiles::Memory<W>),
              .stream = stream},
             attention_kernel<D, columns>, forward);
    });
  });
}

}  // namespace echelon::cuda
