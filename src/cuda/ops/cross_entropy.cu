// The softmax and the loss of a part of the vocabulary. Formulas are in ops/reference/cross_entropy.cpp. All of it is
// bound by memory, and an exponential is cheap.
//
// row_exp reads the logits once and writes none. It keeps a running maximum and the sum of exponentials relative to it
// (Milakov and Gimelshein 2018, arXiv:1805.02867). The gradient recomputes the exponentials from lse. That is 2 + 4
// bytes for a bfloat16 logit, and 4 + 6 for a float32 one whose gradient is a bfloat16. Writing the exponentials would
// make the latter 12 + 6, or 8 + 6 if all current rows fit in the L2 cache.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/device/tickets.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "ops/gpu/paired_operations.h"

#include <algorithm>
#include <limits>

namespace echelon::cuda {
namespace {

constexpr int max_block_threads = 512, packs_in_flight = 4;

__device__ __forceinline__ float exponential(float x) { return __expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
template <class A>
constexpr A infinity = std::numeric_limits<A>::infinity();

/// The columns of a row that start and end a pack, whatever the row's width: packs start at multiples of their width in
/// the whole tensor. The elements before and after them are less than a pack.
struct PackedColumns {
  __device__ PackedColumns(std::int64_t row_start, int num_columns, int width) {
    const int past = static_cast<int>(row_start % width);
    first = min(past == 0 ? 0 : width - past, num_columns);
    last = first + (num_columns - first) / width * width;
  }
  int first, last;
};

/// The largest of the values so far, and the sum of exp(number - max).
template <class A>
struct Exponentials {
  A max, sum;

  template <int count>
  __device__ __forceinline__ void add(const A (&x)[count]) {
    A larger = max;
#pragma unroll
    for (int i = 0; i < count; ++i) larger = larger_or_nan(larger, x[i]);
    const A base = larger == -infinity<A> ? A(0) : larger;  // of minus infinity alone every exponential is 0
    sum *= exponential(max - base);
#pragma unroll
    for (int i = 0; i < count; ++i) sum += exponential(x[i] - base);
    max = larger;
  }
};

template <class L>
struct RowExpTensors {
  const L* logits;
  const std::int32_t* targets;
  Wide<L>*max, *sum, *target_logit;
};

/// Where the loss of each row goes, and the sum over all rows that have a target.
template <class A>
struct RowLosses {
  A* lse;
  double *losses, *loss_sum;
  unsigned* ticket;
};

/// A block has a row. `has_losses`: the row's sum is whole, so its loss follows.
template <class L, bool has_losses>
__global__ void __launch_bounds__(max_block_threads)
    row_exp_kernel(RowExpTensors<L> of, std::int64_t V, std::int64_t first_column, int valid_columns,
                   RowLosses<Wide<L>> and_losses) {
  using A = Wide<L>;
  constexpr int width = pack_size<L>, group = packs_in_flight * width;
  const std::int64_t n = blockIdx.x;
  const L* logits = of.logits + n * V;
  const int thread = static_cast<int>(threadIdx.x), num_threads = static_cast<int>(blockDim.x);
  const PackedColumns packed(n * V, valid_columns, width);
  Exponentials<A> mine = {-infinity<A>, 0};
  for (int begin = packed.first; begin < packed.last; begin += num_threads * group) {
    A x[group];
#pragma unroll
    for (int k = 0; k < packs_in_flight; ++k) {
      const int column = begin + (k * num_threads + thread) * width;
      Pack<A, width> pack;
#pragma unroll
      for (int i = 0; i < width; ++i) pack.at[i] = -infinity<A>;
      if (column < packed.last) pack = widen(load_pack<width>(logits + column));
#pragma unroll
      for (int i = 0; i < width; ++i) x[k * width + i] = pack.at[i];
    }
    mine.add(x);
  }
  // Of the columns outside of packs, this thread's.
  const int beside = thread < packed.first ? thread : packed.last + thread - packed.first;
  if (beside < valid_columns) mine.add({widen(logits[beside])});

  __shared__ A scratch[2 * max_block_threads / warp_size];
  const A max = block_max(mine.max, scratch);
  const A sum = block_sum(mine.sum * exponential(mine.max - max), scratch + max_block_threads / warp_size);
  if (thread == 0) {
    const std::int64_t target = of.targets[n], column = target - first_column;
    const bool is_here = target != ignored_target && column >= 0 && column < valid_columns;
    const A target_logit = is_here ? widen(logits[column]) : A(0), row_sum = valid_columns == 0 ? A(0) : sum;
    of.target_logit[n] = target_logit;
    of.max[n] = max;
    of.sum[n] = row_sum;
    if constexpr (has_losses) {
      const A lse = max + log(row_sum);
      and_losses.lse[n] = lse;
      and_losses.losses[n] =
          target == ignored_target ? 0 : static_cast<double>(lse) - static_cast<double>(target_logit);
    }
  }
  if constexpr (has_losses) {
    if (!is_last_block(and_losses.ticket, gridDim.x)) return;
    double loss = 0;
    for (unsigned row = threadIdx.x; row < gridDim.x; row += blockDim.x)
      loss += load_of_others(and_losses.losses + row);
    __shared__ double of_warps[max_block_threads / warp_size];
    loss = block_sum(loss, of_warps);
    if (thread == 0) *and_losses.loss_sum += loss;
  }
}

template <class A>
__global__ void rescale_sums_kernel(A* sum, const A* max, const A* row_max, std::int64_t count) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n < count) sum[n] *= exp(max[n] - row_max[n]);
}

template <class A>
struct LossTensors {
  const A *max, *sum, *target_logit;
  const std::int32_t* targets;
  A* lse;
  double* loss_sum;
};

/// Of one block, since rows are few and their sum has one order.
template <class A>
__global__ void __launch_bounds__(max_block_threads) cross_entropy_kernel(LossTensors<A> of, std::int64_t count) {
  double loss = 0;
  for (std::int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    const A lse = of.max[n] + log(of.sum[n]);
    if (of.targets[n] != ignored_target) loss += static_cast<double>(lse) - static_cast<double>(of.target_logit[n]);
    of.lse[n] = lse;
  }
  __shared__ double scratch[max_block_threads / warp_size];
  loss = block_sum(loss, scratch);
  if (threadIdx.x == 0) *of.loss_sum += loss;
}

template <class T, class L>
struct LogitGradients {
  const L* logits;
  const Wide<T>* lse;
  const std::int32_t* targets;
  T* dlogits;
  const double* loss_scale;  // may be null
};

/// A block has a part of a row: what `packs_in_flight` packs of each of its threads hold. dlogits may be the logits.
template <class T, class L>
__global__ void __launch_bounds__(256)
    cross_entropy_backward_kernel(LogitGradients<T, L> of, int V, std::int64_t first_column, int valid_columns,
                                  double factor) {
  using A = Wide<T>;
  constexpr int width = pack_size<L>;
  const std::int64_t n = blockIdx.x, row_start = n * V;
  const int thread = static_cast<int>(threadIdx.x), num_threads = static_cast<int>(blockDim.x);
  const PackedColumns packed(row_start, V, width);
  const L* logits = of.logits + row_start;
  T* dlogits = of.dlogits + row_start;
  const std::int64_t target = of.targets[n], target_column = target - first_column;
  const int valid = target == ignored_target ? 0 : valid_columns;
  const A lse = of.lse[n], scale = static_cast<A>(of.loss_scale != nullptr ? factor * *of.loss_scale : factor);
  const auto gradient = [&](A logit, int column) {
    return column < valid ? scale * (exponential(logit - lse) - (column == target_column ? A(1) : A(0))) : A(0);
  };

  PackedWords<L, width> x[packs_in_flight] = {};
  const int begin = packed.first + (static_cast<int>(blockIdx.y) * packs_in_flight * num_threads + thread) * width;
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k) {
    const int column = begin + k * num_threads * width;
    if (column < min(packed.last, valid)) x[k] = load_words<width>(logits + column);
  }
#pragma unroll
  for (int k = 0; k < packs_in_flight; ++k) {
    const int column = begin + k * num_threads * width;
    if (column >= packed.last) break;
    Pack<A, width> dx = widen(unpack(x[k]));
#pragma unroll
    for (int i = 0; i < width; ++i) dx.at[i] = gradient(dx.at[i], column + i);
    store_pack(dlogits + column, narrow<T>(dx));
  }
  if (blockIdx.y > 0) return;
  const int beside = thread < packed.first ? thread : packed.last + thread - packed.first;
  if (beside < V) dlogits[beside] = narrow<T>(gradient(widen(logits[beside]), beside));
}

template <class F>
void visit_sums(DType dtype, F&& f) {
  dtype == DType::float64 ? f(double{}) : f(float{});
}

/// Threads for a row of `packs` packs: no more than have work, in whole warps.
int threads_for(std::int64_t packs, int most) {
  const std::int64_t warps = blocks_for(packs, std::int64_t{packs_in_flight} * warp_size);
  return static_cast<int>(std::clamp<std::int64_t>(warps * warp_size, warp_size, most));
}

}  // namespace

void CudaOps::compute(const RowExpArgs& args) { compute_pair(Pair<RowExpArgs>{args}); }

void CudaOps::compute_pair(const Pair<RowExpArgs>& pair) {
  const RowExpArgs& args = pair.first;
  const std::int64_t N = args.logits.size(0), V = args.logits.size(1);
  visit_numbers(args.logits.dtype, [&]<class T>(T) {
    using L = on_device<T>;
    using A = Wide<L>;
    const RowExpTensors<L> of = {numbers<T>(args.logits), args.targets.as<std::int32_t>(), numbers<A>(args.max),
                                 numbers<A>(args.sum), numbers<A>(args.target_logit)};
    RowLosses<A> losses = {};
    if (pair.next)
      losses = {numbers<A>(pair.next->lse), workspace_.as<double>(N), numbers<double>(pair.next->loss_sum),
                workspace_.tickets()};
    launch({.num_blocks = N,
            .num_threads = threads_for(blocks_for(V, pack_size<L>), max_block_threads),
            .stream = stream()},
           pair.next ? row_exp_kernel<L, true> : row_exp_kernel<L, false>, of, V, args.first_column,
           static_cast<int>(args.valid_columns), losses);
  });
}

void CudaOps::compute(const RescaleSumsArgs& args) {
  const std::int64_t count = args.sum.num_elements();
  visit_sums(args.sum.dtype, [&]<class A>(A) {
    launch({.num_blocks = blocks_for(count, 256), .stream = stream()}, rescale_sums_kernel<A>, numbers<A>(args.sum),
           numbers<A>(args.max), numbers<A>(args.row_max), count);
  });
}

void CudaOps::compute(const CrossEntropyArgs& args) {
  const std::int64_t count = args.max.num_elements();
  visit_sums(args.max.dtype, [&]<class A>(A) {
    const LossTensors<A> of = {numbers<A>(args.max),          numbers<A>(args.sum),
                               numbers<A>(args.target_logit), args.targets.as<std::int32_t>(),
                               numbers<A>(args.lse),          numbers<double>(args.loss_sum)};
    launch({.num_blocks = count > 0 ? 1 : 0, .num_threads = threads_for(count, max_block_threads), .stream = stream()},
           cross_entropy_kernel<A>, of, count);
  });
}

void CudaOps::compute(const CrossEntropyBackwardArgs& args) {
  const std::int64_t N = args.exps.size(0), V = args.exps.size(1);
  visit_numbers_and_gradient(args.dlogits.dtype, args.exps.dtype, [&]<class T, class Logit>(T, Logit) {
    using L = on_device<Logit>;
    using A = Wide<L>;
    const std::int64_t packs = blocks_for(V, pack_size<L>);
    const int num_threads = threads_for(packs, 256);
    const LogitGradients<on_device<T>, L> of = {numbers<Logit>(args.exps), numbers<A>(args.lse),
                                                args.targets.as<std::int32_t>(), numbers<T>(args.dlogits),
                                                args.loss_scale.exists() ? numbers<double>(args.loss_scale) : nullptr};
    launch({.num_blocks = V > 0 ? N : 0,
            .num_threads = num_threads,
            .num_blocks_y = blocks_for(packs, std::int64_t{num_threads} * packs_in_flight),
            .stream = stream()},
           cross_entropy_backward_kernel<on_device<T>, L>, of, static_cast<int>(V), args.first_column,
           static_cast<int>(args.valid_columns), args.scale);
  });
}

}  // namespace echelon::cuda
