// The norm of gradients, what they are multiplied by, and the update; norm and update in one pass over memory each.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

#include "ops/rounding_noise.h"
#include "tensor/remainder.h"

#include <algorithm>
#include <cmath>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

// Squares are summed in two stages and in one order: each block leaves a sum, and one block adds these. A tensor that
// one block can take needs no second stage.
constexpr int packs_in_flight = 4, max_square_blocks = 1024;

template <class T>
__global__ void __launch_bounds__(block_threads)
    squares_kernel(const T* x, std::int64_t count, double* sums, bool adds) {
  constexpr int width = pack_size<T>;
  const std::int64_t num_threads = static_cast<std::int64_t>(gridDim.x) * block_threads,
                     num_packs = (count + width - 1) / width;
  double sum = 0;
  for (std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; pack < num_packs;
       pack += num_threads * packs_in_flight) {
    Pack<T, width> x_k[packs_in_flight];
#pragma unroll
    for (int k = 0; k < packs_in_flight; ++k)
      x_k[k] = load_pack<width>(x + (pack + k * num_threads) * width, count - (pack + k * num_threads) * width);
#pragma unroll
    for (int k = 0; k < packs_in_flight; ++k)
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const double x_i = static_cast<double>(widen(x_k[k].at[i]));
        sum += x_i * x_i;
      }
  }
  __shared__ double scratch[block_threads / warp_size];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = adds ? sums[blockIdx.x] + sum : sum;
}

__global__ void __launch_bounds__(block_threads) add_squares_kernel(const double* sums, int count, double* total) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) sum += sums[i];
  __shared__ double scratch[block_threads / warp_size];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *total += sum;
}

struct GradientFactor {
  const double *sum_of_squares, *num_targets, *loss_scale;  // the last may be null
  double *norm, *factor;
};

// As written, without fused multiply-adds, so that a CPU computes the same values.
__global__ void gradient_factor_kernel(GradientFactor of, double expected_targets, double max_norm) {
  const double correction = *of.num_targets > 0
                                ? expected_targets / *of.num_targets / (of.loss_scale != nullptr ? *of.loss_scale : 1.0)
                                : 0.0;
  const double norm = __dmul_rn(sqrt(*of.sum_of_squares), correction),
               clipping = max_norm > 0 ? max_norm / __dadd_rn(norm, 1e-6) : 1.0;
  const bool is_finite = norm - norm == 0;
  *of.norm = norm;
  *of.factor = is_finite ? __dmul_rn(correction, clipping < 1 ? clipping : 1.0) : norm - norm;
}

/// AdamWArgs as the values that an element needs, the same in all steps.
template <class A>
struct AdamWConstants {
  explicit AdamWConstants(const AdamWArgs& args)
      : weight_decay(args.weight_decay),
        eps(static_cast<A>(args.eps)),
        beta2(static_cast<A>(args.beta2)),
        one_minus_beta1(static_cast<A>(1 - args.beta1)),
        one_minus_beta2(static_cast<A>(1 - args.beta2)) {}
  double weight_decay;
  A eps, beta2, one_minus_beta1, one_minus_beta2;
};

/// Where p is kept.
template <class P, class A>
struct Weights {
  using Number = A;
  P* param;  // null where it is the master
  A* master;

  __device__ __forceinline__ Pack<A, pack_size<A>> load(std::int64_t first, std::int64_t present) const {
    return load_pack<pack_size<A>>(master + first, present);
  }
  __device__ __forceinline__ void store(const Pack<A, pack_size<A>>& p, std::int64_t first,
                                        std::int64_t present) const {
    store_pack(master + first, p, present);
    if (param != nullptr) store_pack(param + first, narrow<P>(p), present);
  }
};
/// As in tensor/remainder.h.
struct SplitWeights {
  using Number = float;
  static constexpr int width = pack_size<float>;
  __nv_bfloat16* upper;
  std::int16_t* remainder;

  __device__ __forceinline__ Pack<float, width> load(std::int64_t first, std::int64_t present) const {
    const Pack<__nv_bfloat16, width> high = load_pack<width>(upper + first, present);
    const Pack<std::int16_t, width> low = load_pack<width>(remainder + first, present);
    Pack<float, width> p;
#pragma unroll
    for (int i = 0; i < width; ++i) p.at[i] = joined({__bfloat16_as_ushort(high.at[i]), low.at[i]});
    return p;
  }
  __device__ __forceinline__ void store(const Pack<float, width>& p, std::int64_t first, std::int64_t present) const {
    Pack<__nv_bfloat16, width> high;
    Pack<std::int16_t, width> low;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const SplitFloat parts = split(p.at[i]);
      high.at[i] = __ushort_as_bfloat16(parts.upper);
      low.at[i] = parts.remainder;
    }
    store_pack(upper + first, high, present);
    store_pack(remainder + first, low, present);
  }
};

template <class G, class M, class W>
struct AdamWTensors {
  W weights;
  const G* grad;
  M *m, *v;
};

/// The random words of elements i, i + 1, ... of the tensors: one block of the generator where these are four that make
/// one.
template <int count>
__device__ __forceinline__ void draw(std::uint32_t (&words)[count], const RoundingNoise& noise, std::int64_t i) {
  const TensorSlice& slice = noise.slice;
  const std::int64_t rows = slice.row() == slice.stride() ? 0 : slice.row() | slice.stride();
  if (count == 4 && ((slice.first() | slice.offset() | rows) & 3) == 0) {
    const std::array<std::uint32_t, 4> block = noise_block(noise, slice.index(i) / 4);
#pragma unroll
    for (int k = 0; k < count; ++k) words[k] = block[static_cast<std::size_t>(k)];
  } else {
    for (int k = 0; k < count; ++k) words[k] = noise_word(noise, i + k);
  }
}

/// Stores moments in the format of the sums, or rounds them at random; `shift`: where in a word their bits are.
template <class M, class A, int count>
__device__ __forceinline__ void store_moments(M* address, const Pack<A, count>& x, const std::uint32_t (&words)[count],
                                              int shift, std::int64_t present) {
  if constexpr (std::is_same_v<M, A>) {
    store_pack(address, x, present);
  } else {
    Pack<M, count> rounded;
#pragma unroll
    for (int k = 0; k < count; ++k)
      rounded.at[k] = __ushort_as_bfloat16(stochastic_bfloat16(x.at[k], words[k] >> shift));
    store_pack(address, rounded, present);
  }
}

template <class G, class M, class W>
__global__ void __launch_bounds__(block_threads)
    adamw_kernel(AdamWTensors<G, M, W> of, AdamWConstants<typename W::Number> with, const AdamWScalars* scalars,
                 RoundingNoise noise, std::int64_t count) {
  using A = typename W::Number;
  constexpr int width = pack_size<A>;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * width,
                     present = count - first;
  if (present <= 0) return;
  const AdamWScalars now = *scalars;
  if (now.grad_scale != now.grad_scale) return;
  const A decay = static_cast<A>(__dadd_rn(1.0, -__dmul_rn(now.lr, with.weight_decay))),
          step_size = static_cast<A>(now.step_size), sqrt_bias2 = static_cast<A>(now.sqrt_bias2),
          grad_scale = static_cast<A>(now.grad_scale);
  const Pack<G, width> grad = load_pack<width>(of.grad + first, present);
  Pack<A, width> p = of.weights.load(first, present), m = widen(load_pack<width>(of.m + first, present)),
                 v = widen(load_pack<width>(of.v + first, present));
  std::uint32_t words[width] = {};
  if constexpr (!std::is_same_v<M, A>) draw(words, at_step(noise, now.step), first);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const A g = grad_scale * static_cast<A>(widen(grad.at[i]));
    p.at[i] *= decay;
    m.at[i] += with.one_minus_beta1 * (g - m.at[i]);
    v.at[i] = with.beta2 * v.at[i] + with.one_minus_beta2 * g * g;
    p.at[i] -= step_size * m.at[i] / (sqrt(v.at[i]) / sqrt_bias2 + with.eps);
  }
  store_moments(of.m + first, m, words, 0, present);
  store_moments(of.v + first, v, words, 16, present);
  of.weights.store(p, first, present);
}

}  // namespace

void CudaOps::compute(const SumOfSquaresArgs& args) {
  const Tensor &x = args.x, &sum = args.sum;
  const std::int64_t count = x.num_elements();
  auto* const total = numbers<double>(sum);
  visit_numbers(x.dtype, [&]<class T>(T) {
    constexpr std::int64_t block_elements = std::int64_t{block_threads} * packs_in_flight * pack_size<T>;
    const std::int64_t num_blocks = std::min<std::int64_t>(blocks_for(count, block_elements), max_square_blocks);
    const bool is_one_block = num_blocks <= 1;
    double* const sums = is_one_block ? total : workspace_.as<double>(num_blocks);
    launch({.num_blocks = num_blocks, .num_threads = block_threads, .stream = stream()}, squares_kernel<on_device<T>>,
           numbers<T>(x), count, sums, is_one_block);
    if (is_one_block) return;
    launch({.num_threads = block_threads, .stream = stream()}, add_squares_kernel, sums, static_cast<int>(num_blocks),
           total);
  });
}

void CudaOps::compute(const GradientFactorArgs& args) {
  const GradientFactor of = {numbers<double>(args.sum_of_squares), numbers<double>(args.num_targets),
                             args.loss_scale.exists() ? numbers<double>(args.loss_scale) : nullptr,
                             numbers<double>(args.norm), numbers<double>(args.factor)};
  launch({.num_threads = 1, .stream = stream()}, gradient_factor_kernel, of, args.expected_targets, args.max_norm);
}

void CudaOps::compute(const AdamWArgs& args) {
  const std::int64_t count = args.master.num_elements();
  visit_numbers_and_gradient(args.param.dtype, args.grad.dtype, [&]<class P, class G>(P, G) {
    using A = Wide<on_device<P>>;
    const auto run = [&]<class M, class W>(M, W weights) {
      const AdamWTensors<on_device<G>, on_device<M>, W> of = {weights, numbers<G>(args.grad), numbers<M>(args.m),
                                                              numbers<M>(args.v)};
      launch({.num_blocks = blocks_for(count, block_threads * pack_size<A>),
              .num_threads = block_threads,
              .stream = stream()},
             adamw_kernel<on_device<G>, on_device<M>, W>, of, AdamWConstants<A>(args),
             reinterpret_cast<const AdamWScalars*>(args.scalars.data), args.noise, count);
    };
    const auto start = [&]<class M>(M moment) {
      if constexpr (std::is_same_v<P, bfloat16>) {
        if (is_remainder(args))
          return run(moment, SplitWeights{numbers<P>(args.param), numbers<std::int16_t>(args.master)});
      }
      const bool is_master = args.param.data == args.master.data;
      run(moment, Weights<on_device<P>, A>{is_master ? nullptr : numbers<P>(args.param), numbers<A>(args.master)});
    };
    if constexpr (std::is_same_v<A, float>) {
      if (args.m.dtype == DType::bfloat16) return start(bfloat16{});
    }
    start(A{});
  });
}

}  // namespace echelon::cuda
