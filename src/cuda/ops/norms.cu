// LayerNorm and RMSNorm with the residual sum before them (formulas: ops/reference/norms.cpp). Bound by memory: x and
// the residual are read once, the sum stays in the registers of the threads that share a row, and x and y are written
// once. (Gradients: norms_backward.cu.)
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/norm_row.h"

namespace echelon::cuda {
namespace {

constexpr int kept_packs = 4;  // of a row, by a thread: all are on their way before the first is needed

template <class T, bool centres, class Access>
__global__ void __launch_bounds__(most_team_threads, 2) norm_kernel(Norm<T> of, Amaxes<1> amaxes, int team_threads) {
  Team<Wide<T>> team(team_threads);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * team.count() + team.index();
  const unsigned largest[] = {normalise_row<T, centres, true, Access>(of, team, row)};
  leave_amaxes(amaxes, largest, gridDim.x);
}

template <bool centres>
void enqueue_norm(const LayerNormArgs& args, const RmsNormArgs& of_rms, const ComputeLane& lane) {
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    visit_row_access<T, kept_packs>(args.x.size(-1), [&]<class Access>(Access, const Teams& teams) {
      launch({.num_blocks = blocks_for(num_rows_of(args.x), teams.per_block),
              .num_threads = teams.block_threads(),
              .stream = lane.stream},
             norm_kernel<on_device<T>, centres, Access>, norm_of<T>(args, of_rms), amaxes_of(lane.workspace, args.y),
             teams.threads);
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

void CudaOps::compute(const LayerNormArgs& args) { enqueue_norm<true>(args, {}, lane()); }

void CudaOps::compute(const RmsNormArgs& args) { enqueue_norm<false>(as_layer_norm(args), args, lane()); }

}  // namespace echelon::cuda
