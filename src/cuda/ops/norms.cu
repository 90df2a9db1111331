// LayerNorm and RMSNorm with the residual sum before them (formulas: ops/reference/norms.cpp). Bound by memory: x and
// the residual are read once, the sum stays in the registers of the threads that share a row, and x and y are written
// once. (Gradients: norms_backward.cu.)
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/rows.h"

namespace echelon::cuda {
namespace {

constexpr int kept_packs = 4;  // of a row, by a thread: all are on their way before the first is needed

/// RMSNorm has neither b nor mean.
template <class T>
struct Norm {
  T* x;
  const T *residual, *w, *b;  // residual: or null
  T* y;
  Wide<T>*mean, *rstd;
  Wide<T> eps, gain_offset;  // gain_offset: of RMSNorm
  bool rounds_before_gain;
  const Wide<T>* squares;  // of whole rows of `width`, of which x has a part; or null
  Wide<T> width;
  std::int64_t num_rows;
  int D;
};

template <class T, bool centres, class Access>
__global__ void __launch_bounds__(most_team_threads, 2) norm_kernel(Norm<T> of, int team_threads) {
  using A = Wide<T>;
  constexpr int width = Access::width;
  using Numbers = Pack<T, width>;
  Team<A> team(team_threads);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * team.count() + team.index();
  const bool is_there = row < of.num_rows;
  const int D = is_there ? of.D : 0;
  T* const x = of.x + row * of.D;
  Kept<Access, T> kept = {};
  const auto x_at = [&](int k, int column) -> Numbers {
    return Access::keeps ? unpack(kept[k]) : load_pack<width>(x + column);
  };

  if constexpr (Access::keeps)
    for_packs<Access>(team, D, [&](int k, int column) { kept[k] = load_words<width>(x + column); });
  if (of.residual != nullptr) {
    const T* const residual = of.residual + row * of.D;
    Kept<Access, T> kept_residual = {};
    if constexpr (Access::keeps)
      for_packs<Access>(team, D, [&](int k, int column) { kept_residual[k] = load_words<width>(residual + column); });
    for_packs<Access>(team, D, [&](int k, int column) {
      Numbers sum = x_at(k, column);
      const Numbers added = Access::keeps ? unpack(kept_residual[k]) : load_pack<width>(residual + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] = narrow<T>(widen(sum.at[i]) + widen(added.at[i]));
      store_pack(x + column, sum);
      if constexpr (Access::keeps) kept[k] = pack_words(sum);
    });
  }

  A mean[1] = {0};
  if constexpr (centres) {
    for_packs<Access>(team, D, [&](int k, int column) {
      const Numbers x_k = x_at(k, column);
#pragma unroll
      for (int i = 0; i < width; ++i) mean[0] += widen(x_k.at[i]);
    });
    team.sum(mean);
    mean[0] /= static_cast<A>(of.D);
  }
  A squares[1] = {0};
  for_packs<Access>(team, D, [&](int k, int column) {
    const Numbers x_k = x_at(k, column);
#pragma unroll
    for (int i = 0; i < width; ++i) squares[0] += (widen(x_k.at[i]) - mean[0]) * (widen(x_k.at[i]) - mean[0]);
  });
  team.sum(squares);
  if (of.squares != nullptr && is_there) squares[0] = of.squares[row];
  const A rstd = A{1} / sqrt(squares[0] / of.width + of.eps);
  if (is_there && team.is_first()) {
    if constexpr (centres) of.mean[row] = mean[0];
    of.rstd[row] = rstd;
  }

  T* const y = of.y + row * of.D;
  for_packs<Access>(team, D, [&](int k, int column) {
    const Numbers x_k = x_at(k, column), w = load_pack<width>(of.w + column);
    Numbers b = {}, y_k;
    if constexpr (centres) b = load_pack<width>(of.b + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      A xhat = (widen(x_k.at[i]) - mean[0]) * rstd;
      if (!centres && of.rounds_before_gain) xhat = widen(narrow<T>(xhat));
      A y_i = xhat * (centres ? widen(w.at[i]) : of.gain_offset + widen(w.at[i]));
      if constexpr (centres) y_i += widen(b.at[i]);
      y_k.at[i] = narrow<T>(y_i);
    }
    store_pack(y + column, y_k);
  });
}

/// RMSNorm's arguments come as LayerNorm's without b and mean.
template <bool centres>
void enqueue_norm(const LayerNormArgs& args, const RmsNormArgs& of_rms, cudaStream_t stream) {
  const std::int64_t D = args.x.size(-1), N = num_rows_of(args.x);
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    using Number = on_device<T>;
    using A = Wide<Number>;
    const Norm<Number> norm = {.x = numbers<T>(args.x),
                               .residual = numbers<T>(args.residual),
                               .w = numbers<T>(args.w),
                               .b = numbers<T>(args.b),
                               .y = numbers<T>(args.y),
                               .mean = numbers<A>(args.mean),
                               .rstd = numbers<A>(args.rstd),
                               .eps = static_cast<A>(args.eps),
                               .gain_offset = static_cast<A>(of_rms.gain_offset),
                               .rounds_before_gain = of_rms.rounds_before_gain,
                               .squares = numbers<A>(of_rms.squares),
                               .width = static_cast<A>(of_rms.squares.exists() ? of_rms.width : D),
                               .num_rows = N,
                               .D = static_cast<int>(D)};
    visit_row_access<T, kept_packs>(D, [&]<class Access>(Access, const Teams& teams) {
      launch({.num_blocks = blocks_for(N, teams.per_block), .num_threads = teams.block_threads(), .stream = stream},
             norm_kernel<Number, centres, Access>, norm, teams.threads);
    });
  });
}

template <class T>
struct RowProducts {
  const T *x, *y, *w;  // w: or null
  Wide<T>* sums;
  Wide<T> gain_offset;
  std::int64_t num_rows;
  int D;
};

/// A warp for each row.
template <class T>
__global__ void __launch_bounds__(most_team_threads) row_products_kernel(RowProducts<T> of) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size;
  if (row >= of.num_rows) return;
  Wide<T> sum = 0;
  for (int column = static_cast<int>(threadIdx.x) % warp_size; column < of.D; column += warp_size) {
    const Wide<T> gain = of.w == nullptr ? Wide<T>(1) : of.gain_offset + widen(of.w[column]);
    sum += widen(of.x[row * of.D + column]) * widen(of.y[row * of.D + column]) * gain;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) of.sums[row] = sum;
}

}  // namespace

void CudaOps::compute(const RowProductsArgs& args) {
  constexpr int num_threads = 256;
  const std::int64_t N = num_rows_of(args.x);
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    using Number = on_device<T>;
    const RowProducts<Number> of = {.x = numbers<T>(args.x),
                                    .y = numbers<T>(args.y),
                                    .w = numbers<T>(args.w),
                                    .sums = numbers<Wide<Number>>(args.sums),
                                    .gain_offset = static_cast<Wide<Number>>(args.gain_offset),
                                    .num_rows = N,
                                    .D = static_cast<int>(args.x.size(-1))};
    launch({.num_blocks = blocks_for(N, num_threads / warp_size), .num_threads = num_threads, .stream = stream()},
           row_products_kernel<Number>, of);
  });
}

void CudaOps::compute(const LayerNormArgs& args) { enqueue_norm<true>(args, {}, stream()); }

void CudaOps::compute(const RmsNormArgs& args) {
  enqueue_norm<false>({.x = args.x,
                       .w = args.w,
                       .b = {},
                       .y = args.y,
                       .mean = {},
                       .rstd = args.rstd,
                       .residual = args.residual,
                       .eps = args.eps},
                      args, stream());
}

}  // namespace echelon::cuda
