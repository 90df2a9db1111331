// Gradients of LayerNorm and RMSNorm, with xhat = (x - mean) rstd and g = dy w (formulas: ops/reference/norms.cpp). dy
// and x are read once for all of them. A row of both stays in registers. So do a thread's column sums of dy xhat and
// dy, until its block has processed all of its rows. A norm that follows is computed after each row's gradient
// (paired_operations.h).
#include "cuda/ops/column_sums.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/norm_row.h"
#include "ops/gpu/paired_operations.h"

#include <cassert>
#include <cmath>

namespace echelon::cuda {
namespace {

constexpr int kept_packs = 4, kept_packs_beside_sums = 2;  // of a row, by a thread

template <class T>
struct NormGradient {
  const T *dy, *x, *w, *past;  // past: dresidual, or null
  T* dx;                       // may be `past`
  const Wide<T>*mean, *rstd;   // no mean: RMSNorm
  std::int64_t num_rows;
  int D;
  Wide<T> one_over_D, gain_offset;  // gain_offset: of RMSNorm
  const Wide<T>* products;          // of whole rows, of which this is a part; or null
};

template <bool centres>
constexpr int num_weights = centres ? 2 : 1;  // w and b, or w

/// The sums over a block's rows, of the columns that each thread of a team has, become a row of `out`.
template <class Access, class A, int num_sums>
__device__ __forceinline__ void write_partial_sums(const Team<A>& team,
                                                   const A (&sums)[num_sums][Access::kept][Access::width],
                                                   const PartialSums<A, num_sums>& out) {
  A* const of_teams = dynamic_shared<A>();  // [teams][D], if they are several
  const int D = static_cast<int>(out.D);
  for (int which = 0; which < num_sums; ++which) {
    A* const of_block = out.numbers + (static_cast<std::int64_t>(blockIdx.x) * num_sums + which) * out.D;
    A* const of_team = team.count() == 1 ? of_block : of_teams + team.index() * D;
    for_packs<Access>(team, D, [&](int k, int column) {
#pragma unroll
      for (int i = 0; i < Access::width; ++i) of_team[column + i] = sums[which][k][i];
    });
    if (team.count() == 1) continue;
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < D; column += static_cast<int>(blockDim.x)) {
      A sum = 0;
      for (int other = 0; other < team.count(); ++other) sum += of_teams[other * D + column];
      of_block[column] = sum;
    }
    __syncthreads();
  }
}

/// What a kernel computes: dw and db are the sums over all rows of dy xhat and dy, which are added to tensors of G.
enum class Computes : std::uint8_t {
  dx,
  dx_and_dw,
  dx_dw_and_norm,  // and a norm of rows of x of its own, whose result may be where dy was
};

template <class T, class G, bool centres, Computes computes, class Access>
__global__ void __launch_bounds__(most_team_threads)
    norm_backward_kernel(NormGradient<T> of, int team_threads, ColumnSums<Wide<T>, G, num_weights<centres>> of_weights,
                         Norm<T> norm, Amaxes<2> amaxes) {
  constexpr bool sums_weights = computes != Computes::dx;
  using A = Wide<T>;
  constexpr int width = Access::width;
  using Numbers = Pack<T, width>;
  Team<A> team(team_threads);
  A weights[num_weights<centres>][sums_weights ? Access::kept : 1][width] = {};
  unsigned largest[2] = {};  // of dx, and of the norm's y
  const std::int64_t rows_at_once = static_cast<std::int64_t>(gridDim.x) * team.count();
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * team.count(); first < of.num_rows;
       first += rows_at_once) {
    const std::int64_t row = first + team.index();
    const bool is_there = row < of.num_rows;
    const int D = is_there ? of.D : 0;
    const T *const dy = of.dy + row * of.D, *const x = of.x + row * of.D, *const past = of.past + row * of.D;
    T* const dx = of.dx + row * of.D;
    Kept<Access, T> dy_kept = {}, x_kept = {}, past_kept = {};
    if constexpr (Access::keeps)
      for_packs<Access>(team, D, [&](int k, int column) {
        dy_kept[k] = load_words<width>(dy + column);
        x_kept[k] = load_words<width>(x + column);
        if (of.past != nullptr) past_kept[k] = load_words<width>(past + column);
      });
    const A mean = centres && is_there ? of.mean[row] : A{0}, rstd = is_there ? of.rstd[row] : A{0};
    const auto dy_at = [&](int k, int column) -> Numbers {
      return Access::keeps ? unpack(dy_kept[k]) : load_pack<width>(dy + column);
    };
    const auto x_at = [&](int k, int column) -> Numbers {
      return Access::keeps ? unpack(x_kept[k]) : load_pack<width>(x + column);
    };

    A means[num_weights<centres>] = {};  // of g xhat and of g
    for_packs<Access>(team, D, [&](int k, int column) {
      const Numbers dy_k = dy_at(k, column), x_k = x_at(k, column), w = load_pack<width>(of.w + column);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const A dy_i = widen(dy_k.at[i]), g = dy_i * (centres ? widen(w.at[i]) : of.gain_offset + widen(w.at[i])),
                xhat = (widen(x_k.at[i]) - mean) * rstd;
        means[0] += g * xhat;
        if constexpr (centres) means[1] += g;
        if constexpr (sums_weights) {
          weights[0][k][i] += dy_i * xhat;
          if constexpr (centres) weights[1][k][i] += dy_i;
        }
      }
    });
    team.sum(means);
    if constexpr (Access::keeps) {
#pragma unroll
      for (int k = 0; k < Access::kept; ++k) {
        forget_what_became_of(dy_kept[k]);
        forget_what_became_of(x_kept[k]);
      }
    }
    if (of.products != nullptr && is_there) means[0] = of.products[row] * rstd;
    for (A& sum : means) sum *= of.one_over_D;

    for_packs<Access>(team, D, [&](int k, int column) {
      const Numbers dy_k = dy_at(k, column), x_k = x_at(k, column), w = load_pack<width>(of.w + column);
      Numbers past_k = {}, dx_k;
      if (of.past != nullptr) past_k = Access::keeps ? unpack(past_kept[k]) : load_pack<width>(past + column);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        A g = widen(dy_k.at[i]) * (centres ? widen(w.at[i]) : of.gain_offset + widen(w.at[i]));
        const A xhat = (widen(x_k.at[i]) - mean) * rstd;
        if constexpr (centres) g -= means[1];
        A dx_i = rstd * (g - xhat * means[0]);
        if (of.past != nullptr) dx_i += widen(past_k.at[i]);
        dx_k.at[i] = narrow<T>(dx_i);
      }
      store_pack(dx + column, dx_k);
      largest[0] = larger_of(largest[0], dx_k);
    });
    if constexpr (computes == Computes::dx_dw_and_norm)
      largest[1] = max(largest[1], normalise_row<T, centres, false, Access>(norm, team, row));
  }
  leave_amaxes(amaxes, largest, gridDim.x);
  if constexpr (sums_weights) {
    write_partial_sums<Access>(team, weights, of_weights.partial);
    add_chunks_of_blocks(of_weights);
  }
}

/// The gradients of the weights alone.
template <class T, bool centres, int columns>
struct WeightGradientOfRow {
  using Number = T;
  struct Loaded {
    Pack<T, columns> dy, x;
    Wide<T> mean, rstd;
  };
  static constexpr int width = columns, num_sums = num_weights<centres>;

  NormGradient<T> of;

  __device__ Loaded load(std::int64_t row, std::int64_t column) const {
    return {load_pack<width>(of.dy + row * of.D + column), load_pack<width>(of.x + row * of.D + column),
            centres ? of.mean[row] : Wide<T>(0), of.rstd[row]};
  }
  __device__ void add(const Loaded& loaded, std::int64_t /*row*/, std::int64_t /*column*/,
                      Wide<T> (&sums)[num_sums][width]) const {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Wide<T> dy = widen(loaded.dy.at[i]);
      sums[0][i] += dy * ((widen(loaded.x.at[i]) - loaded.mean) * loaded.rstd);
      if constexpr (centres) sums[1][i] += dy;
    }
  }
};

// RMSNorm's arguments come as LayerNorm's without mean and db; what an operation does not have is left out too.

struct NormGradientArgs : LayerNormBackwardArgs {
  double gain_offset = 0;
  Tensor products = {};
  std::int64_t width = 0;
};

template <class T>
NormGradient<on_device<T>> gradient_of(const NormGradientArgs& args) {
  using A = Wide<on_device<T>>;
  return {.dy = numbers<T>(args.dy),
          .x = numbers<T>(args.x),
          .w = numbers<T>(args.w),
          .past = numbers<T>(args.dresidual),
          .dx = numbers<T>(args.dx),
          .mean = numbers<A>(args.mean),
          .rstd = numbers<A>(args.rstd),
          .num_rows = num_rows_of(args.x),
          .D = static_cast<int>(args.x.size(-1)),
          .one_over_D = A{1} / static_cast<A>(args.products.exists() ? args.width : args.x.size(-1)),
          .gain_offset = static_cast<A>(args.gain_offset),
          .products = numbers<A>(args.products)};
}

template <class G, bool centres>
Totals<on_device<G>, num_weights<centres>> weights_of(const LayerNormBackwardArgs& args) {
  if constexpr (centres)
    return {{numbers<G>(args.dw), numbers<G>(args.db)}};
  else
    return {{numbers<G>(args.dw)}};
}

template <bool centres>
void enqueue_input_gradient(const NormGradientArgs& args, const ComputeLane& lane) {
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    visit_row_access<T, kept_packs>(args.x.size(-1), [&]<class Access>(Access, const Teams& teams) {
      const NormGradient<on_device<T>> gradient = gradient_of<T>(args);
      launch({.num_blocks = blocks_for(gradient.num_rows, teams.per_block),
              .num_threads = teams.block_threads(),
              .stream = lane.stream},
             norm_backward_kernel<on_device<T>, on_device<T>, centres, Computes::dx, Access>, gradient, teams.threads,
             ColumnSums<Wide<on_device<T>>, on_device<T>, num_weights<centres>>(), Norm<on_device<T>>(),
             amaxes_of(lane.workspace, args.dx, Tensor()));
    });
  });
}

template <bool centres>
void enqueue_weight_gradient(const NormGradientArgs& args, const ComputeLane& lane) {
  visit_numbers_and_gradient(args.x.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
    visit_row_width<T>(args.x.size(-1), [&]<int width>(std::integral_constant<int, width>) {
      const WeightGradientOfRow<on_device<T>, centres, width> summand = {gradient_of<T>(args)};
      add_column_sums(summand, summand.of.num_rows, summand.of.D, weights_of<G, centres>(args), lane);
    });
  });
}

/// The norm of a pair; without x there is none. RMSNorm's arguments are both.
struct FollowingNorm {
  LayerNormArgs args = {};
  RmsNormArgs of_rms = {};
};

/// With as many blocks as the chip has at a time: each leaves one row of partial sums. Rows too wide for registers take
/// a pass for each gradient (keeps_row_beside_sums).
template <bool centres>
void enqueue_gradients(const NormGradientArgs& args, const FollowingNorm& next, const ComputeLane& lane) {
  visit_numbers_and_gradient(args.x.dtype, args.dw.dtype, [&]<class T, class G>(T, G) {
    using A = Wide<on_device<T>>;
    visit_row_access<T, kept_packs_beside_sums>(args.x.size(-1), [&]<class Access>(Access, const Teams& teams) {
      if constexpr (Access::keeps) {
        const NormGradient<on_device<T>> gradient = gradient_of<T>(args);
        const std::int64_t num_sums = num_weights<centres> * gradient.D;
        const std::int64_t at_once =
            std::int64_t{lane.num_multiprocessors} * std::max(1, most_team_threads / teams.block_threads());
        const std::int64_t num_blocks =
            std::min({blocks_for(gradient.num_rows, teams.per_block), at_once, Workspace::capacity<A>() / num_sums});
        const PartialSums<A, num_weights<centres>> partial = {lane.workspace.as<A>(num_blocks * num_sums), num_blocks,
                                                              gradient.D};
        const auto chunks_of_set = static_cast<unsigned>(std::ceil(std::sqrt(static_cast<double>(num_blocks))));
        assert(num_blocks < Workspace::num_tickets);
        launch({.num_blocks = num_blocks,
                .num_threads = teams.block_threads(),
                .shared_bytes =
                    teams.per_block == 1 ? 0 : static_cast<std::size_t>(teams.per_block * gradient.D) * sizeof(A),
                .stream = lane.stream},
               next.args.x.exists()
                   ? norm_backward_kernel<on_device<T>, on_device<G>, centres, Computes::dx_dw_and_norm, Access>
                   : norm_backward_kernel<on_device<T>, on_device<G>, centres, Computes::dx_and_dw, Access>,
               gradient, teams.threads,
               ColumnSums<A, on_device<G>, num_weights<centres>>{partial, weights_of<G, centres>(args),
                                                                 lane.workspace.tickets(), chunks_of_set},
               next.args.x.exists() ? norm_of<T>(next.args, next.of_rms) : Norm<on_device<T>>(),
               amaxes_of(lane.workspace, args.dx, next.args.y));
      } else {
        enqueue_weight_gradient<centres>(args, lane);
        enqueue_input_gradient<centres>(args, lane);
      }
    });
  });
}

NormGradientArgs without_mean(const RmsNormBackwardArgs& args) {
  return {{.dy = args.dy,
           .x = args.x,
           .w = args.w,
           .mean = {},
           .rstd = args.rstd,
           .dx = args.dx,
           .dw = args.dw,
           .db = {},
           .dresidual = args.dresidual},
          args.gain_offset};
}

}  // namespace

void CudaOps::compute(const LayerNormBackwardInputArgs& args) {
  enqueue_input_gradient<true>({{args.dy, args.x, args.w, args.mean, args.rstd, args.dx, {}, {}, args.dresidual}},
                               lane());
}

void CudaOps::compute(const LayerNormBackwardWeightArgs& args) {
  enqueue_weight_gradient<true>({{args.dy, args.x, {}, args.mean, args.rstd, {}, args.dw, args.db, {}}}, lane());
}

void CudaOps::compute(const LayerNormBackwardArgs& args) { enqueue_gradients<true>({args}, {}, lane()); }

void CudaOps::compute_pair(const Pair<LayerNormBackwardArgs>& pair) {
  enqueue_gradients<true>({pair.first}, {.args = *pair.next}, lane());
}

void CudaOps::compute(const RmsNormBackwardInputArgs& args) {
  NormGradientArgs gradient =
      without_mean({args.dy, args.x, args.w, args.rstd, args.dx, {}, args.dresidual, args.gain_offset});
  gradient.products = args.products;
  gradient.width = args.width;
  enqueue_input_gradient<false>(gradient, lane());
}

void CudaOps::compute(const RmsNormBackwardWeightArgs& args) {
  enqueue_weight_gradient<false>(without_mean({args.dy, args.x, {}, args.rstd, {}, args.dw, {}}), lane());
}

void CudaOps::compute(const RmsNormBackwardArgs& args) { enqueue_gradients<false>(without_mean(args), {}, lane()); }

void CudaOps::compute_pair(const Pair<RmsNormBackwardArgs>& pair) {
  enqueue_gradients<false>(without_mean(pair.first), {.args = as_layer_norm(*pair.next), .of_rms = *pair.next}, lane());
}

}  // namespace echelon::cuda
