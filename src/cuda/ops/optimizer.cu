// What gradients are multiplied by, and the update in one pass over memory, for many parameters at once.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/segments.h"
#include "ops/gpu/joined_operations.h"

#include "ops/rounding_noise.h"
#include "tensor/remainder.h"

#include <algorithm>
#include <cmath>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

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
      : eps(static_cast<A>(args.eps)),
        beta2(static_cast<A>(args.beta2)),
        one_minus_beta1(static_cast<A>(1 - args.beta1)),
        one_minus_beta2(static_cast<A>(1 - args.beta2)) {}
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

/// What kernels need of the RoundingNoise of a parameter.
struct SegmentNoise {
  std::uint64_t stream;
  std::int64_t first, offset, row, stride;

  /// TensorSlice::index
  [[nodiscard]] __device__ __forceinline__ std::int64_t index(std::int64_t i) const {
    const std::int64_t at = first + i;
    return offset + (row == stride ? at : at / row * stride + at % row);
  }
};

template <class G, class M, class W>
struct AdamWSegment {
  W weights;
  const G* grad;
  M *m, *v;
  std::int64_t count;
  double weight_decay;
  SegmentNoise noise;
};
template <class G, class M, class W>
using AdamWSegments = Segments<AdamWSegment<G, M, W>, most_segments<AdamWArgs>>;

/// The random words of elements i, i + 1, ... of the tensors: one block of the generator where these are four that make
/// one.
template <int count>
__device__ __forceinline__ void draw(std::uint32_t (&words)[count], const SegmentNoise& of, std::uint64_t key,
                                     std::int64_t i) {
  const RoundingNoise noise = {.stream = of.stream, .key = key};  // its slice is not read
  const std::int64_t rows = of.row == of.stride ? 0 : of.row | of.stride;
  if (count == 4 && ((of.first | of.offset | rows) & 3) == 0) {
    const std::array<std::uint32_t, 4> block = noise_block(noise, of.index(i) / 4);
#pragma unroll
    for (int k = 0; k < count; ++k) words[k] = block[static_cast<std::size_t>(k)];
  } else {
    for (int k = 0; k < count; ++k) {
      const std::int64_t index = of.index(i + k);
      words[k] = noise_block(noise, index / 4)[static_cast<std::size_t>(index % 4)];
    }
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
    adamw_kernel(AdamWSegments<G, M, W> segments, AdamWConstants<typename W::Number> with, const AdamWScalars* scalars,
                 std::uint64_t noise_key) {
  using A = typename W::Number;
  constexpr int width = pack_size<A>;
  const int block = static_cast<int>(blockIdx.x), segment = segments.of_block(block);
  const AdamWSegment<G, M, W>& of = segments.at[segment];
  const std::int64_t first =
                         (std::int64_t{block - segments.first_block[segment]} * block_threads + threadIdx.x) * width,
                     present = of.count - first;
  if (present <= 0) return;
  const AdamWScalars now = *scalars;
  if (now.grad_scale != now.grad_scale) return;
  const A decay = static_cast<A>(__dadd_rn(1.0, -__dmul_rn(now.lr, of.weight_decay))),
          step_size = static_cast<A>(now.step_size), sqrt_bias2 = static_cast<A>(now.sqrt_bias2),
          grad_scale = static_cast<A>(now.grad_scale);
  const Pack<G, width> grad = load_pack<width>(of.grad + first, present);
  Pack<A, width> p = of.weights.load(first, present), m = widen(load_pack<width>(of.m + first, present)),
                 v = widen(load_pack<width>(of.v + first, present));
  std::uint32_t words[width] = {};
  if constexpr (!std::is_same_v<M, A>) draw(words, of.noise, at_step({.key = noise_key}, now.step).key, first);
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

void CudaOps::compute(const GradientFactorArgs& args) {
  const GradientFactor of = {numbers<double>(args.sum_of_squares), numbers<double>(args.num_targets),
                             args.loss_scale.exists() ? numbers<double>(args.loss_scale) : nullptr,
                             numbers<double>(args.norm), numbers<double>(args.factor)};
  launch({.num_threads = 1, .stream = stream()}, gradient_factor_kernel, of, args.expected_targets, args.max_norm);
}

void CudaOps::compute(const AdamWArgs& args) { compute_joined(std::vector{args}); }

void CudaOps::compute_joined(const std::vector<AdamWArgs>& held) {
  const AdamWArgs& first = held.front();
  visit_numbers_and_gradient(first.param.dtype, first.grad.dtype, [&]<class P, class G>(P, G) {
    using A = Wide<on_device<P>>;
    const auto run = [&]<class M, class F>(M, F&& weights_of) {
      using W = decltype(weights_of(first));
      AdamWSegments<on_device<G>, on_device<M>, W> segments;
      for (const AdamWArgs& args : held) {
        const TensorSlice& slice = args.noise.slice;
        segments.add({weights_of(args),
                      numbers<G>(args.grad),
                      numbers<M>(args.m),
                      numbers<M>(args.v),
                      args.master.num_elements(),
                      args.weight_decay,
                      {args.noise.stream, slice.first(), slice.offset(), slice.row(), slice.stride()}},
                     blocks_for(args.master.num_elements(), block_threads * pack_size<A>));
      }
      launch({.num_blocks = segments.num_blocks(), .num_threads = block_threads, .stream = stream()},
             adamw_kernel<on_device<G>, on_device<M>, W>, segments, AdamWConstants<A>(first),
             reinterpret_cast<const AdamWScalars*>(first.scalars.data), first.noise.key);
    };
    const auto start = [&]<class M>(M moment) {
      if constexpr (std::is_same_v<P, bfloat16>) {
        if (is_remainder(first))
          return run(moment, [](const AdamWArgs& args) {
            return SplitWeights{numbers<P>(args.param), numbers<std::int16_t>(args.master)};
          });
      }
      run(moment, [](const AdamWArgs& args) {
        const bool is_master = args.param.data == args.master.data;
        return Weights<on_device<P>, A>{is_master ? nullptr : numbers<P>(args.param), numbers<A>(args.master)};
      });
    };
    if constexpr (std::is_same_v<A, float>) {
      if (first.m.dtype == DType::bfloat16) return start(bfloat16{});
    }
    start(A{});
  });
}

}  // namespace echelon::cuda
