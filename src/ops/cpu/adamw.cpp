// The factor of gradients, and one AdamW step (Loshchilov and Hutter 2019) in one pass over memory; formulas:
// ops/operations/optimizer.h.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/adamw.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/noise-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/rounding_noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

// New moments pass through a buffer that stays in the first cache, from which they are rounded.
template <class A>
struct MomentBuffers {
  static constexpr std::int64_t count = 512;
  A m[count], v[count];
};

/// The elements [first, first + count) of the moments, neighbours in their parameter too; `m` and `v` are those before
/// rounding.
void round_neighbours(const AdamWArgs& args, const RoundingNoise& noise, const float* m, const float* v,
                      std::int64_t first, std::int64_t count) {
  const Tag<std::uint32_t> d;
  const auto lanes_of = static_cast<std::int64_t>(hn::Lanes(d));
  // A partial block, a vector of blocks, and one of values.
  constexpr std::int64_t beyond = 4 + 5 * HWY_MAX_BYTES / sizeof(std::uint32_t);
  std::uint32_t words[MomentBuffers<float>::count + beyond];
  const std::int64_t index = noise.slice.index(first), end = index + count;
  for (std::int64_t block = index / 4; 4 * block < end; block += lanes_of)
    noise_blocks(noise, block, words + 4 * (block - index / 4));
  const std::uint32_t* random = words + index % 4;
  bfloat16 *m_out = args.m.as<bfloat16>() + first, *v_out = args.v.as<bfloat16>() + first;
  for_lanes<float>(0, count, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto bits = hn::LoadU(d, random + i);
    lanes.store(stochastically_rounded(lanes.load(m + i), bits), m_out + i);
    lanes.store(stochastically_rounded(lanes.load(v + i), hn::ShiftRight<16>(bits)), v_out + i);
  });
}

/// The elements [first, last) of the moments, at most a buffer's.
void round_moments(const AdamWArgs& args, const RoundingNoise& noise, const MomentBuffers<float>& from,
                   std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first, count = 0; i < last; i += count) {
    count = std::min(last - i, noise.slice.num_neighbours(i));
    round_neighbours(args, noise, from.m + i - first, from.v + i - first, i, count);
  }
}

// Where p is kept: `lanes` loads and stores those from i on.
template <class P, class A>
struct Weights {
  A* master;
  P* param;
  bool writes_param;

  explicit Weights(const AdamWArgs& args)
      : master(args.master.as<A>()), param(args.param.as<P>()), writes_param(args.param.data != args.master.data) {}
  template <class L>
  HWY_INLINE Vec<A> load(L lanes, std::int64_t i) const {
    return lanes.load(master + i);
  }
  template <class L>
  HWY_INLINE void store(L lanes, Vec<A> p, std::int64_t i) const {
    lanes.store(p, master + i);
    if (writes_param) lanes.store(p, param + i);
  }
};
// As in tensor/remainder.h.
struct SplitWeights {
  std::int16_t* remainder;
  bfloat16* upper;

  explicit SplitWeights(const AdamWArgs& args)
      : remainder(args.master.as<std::int16_t>()), upper(args.param.as<bfloat16>()) {}
  template <class L>
  HWY_INLINE Vec<float> load(L lanes, std::int64_t i) const {
    const Tag<std::int32_t> words;
    return hn::BitCast(Tag<float>(),
                       hn::Add(hn::BitCast(words, lanes.load(upper + i)), lanes.load_words(remainder + i)));
  }
  template <class L>
  HWY_INLINE void store(L lanes, Vec<float> p, std::int64_t i) const {
    const Tag<std::int32_t> words;
    const auto word = hn::BitCast(words, p);
    const auto rest =
        hn::IfThenZeroElse(hn::RebindMask(words, hn::IsNaN(p)), hn::ShiftRight<16>(hn::ShiftLeft<16>(word)));
    lanes.store(hn::BitCast(Tag<float>(), hn::Sub(word, rest)), upper + i);  // which is a bfloat16
    lanes.store_words(rest, remainder + i);
  }
};

template <class G, class M, class A, class W>
void update(const AdamWArgs& args, const W& weights, int num_threads) {
  const Tag<A> d;
  const auto number = [d](double x) HWY_ATTR { return hn::Set(d, static_cast<A>(x)); };
  const AdamWScalars now = scalars_of(args);
  if (std::isnan(now.grad_scale)) return;
  [[maybe_unused]] const RoundingNoise noise = at_step(args.noise, now.step);
  const auto decay = number(1 - now.lr * args.weight_decay), step_size = number(now.step_size),
             inverse_sqrt_bias2 = number(1 / now.sqrt_bias2);
  const auto eps = number(args.eps), grad_scale = number(now.grad_scale), beta2 = number(args.beta2);
  const auto one_minus_beta1 = number(1 - args.beta1), one_minus_beta2 = number(1 - args.beta2);
  constexpr bool rounds = !std::is_same_v<M, A>;
  M *m = args.m.as<M>(), *v = args.v.as<M>();
  const G* grad = args.grad.as<G>();
  divide({args.master.num_elements(), 4, 64, num_threads}, [=](std::int64_t begin, std::int64_t end) HWY_ATTR {
    MomentBuffers<A> buffers;
    const std::int64_t block = rounds ? buffers.count : end - begin;
    for (std::int64_t first = begin; first < end; first += block) {
      const std::int64_t last = std::min(end, first + block);
      A *m_after = rounds ? buffers.m : reinterpret_cast<A*>(m + first),
        *v_after = rounds ? buffers.v : reinterpret_cast<A*>(v + first);
      for_lanes<A>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
        const auto g = hn::Mul(grad_scale, lanes.load(grad + i)), m_before = lanes.load(m + i);
        const auto m_i = hn::MulAdd(one_minus_beta1, hn::Sub(g, m_before), m_before);
        const auto v_i = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, lanes.load(v + i)));
        const auto denominator = hn::MulAdd(hn::Sqrt(v_i), inverse_sqrt_bias2, eps);
        const auto p = hn::Sub(hn::Mul(weights.load(lanes, i), decay), hn::Div(hn::Mul(step_size, m_i), denominator));
        lanes.store(m_i, m_after + i - first);
        lanes.store(v_i, v_after + i - first);
        weights.store(lanes, p, i);
      });
      if constexpr (rounds) round_moments(args, noise, buffers, first, last);
    }
  });
}

void AdamW(const AdamWArgs& args, int num_threads) {
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) {
    using P = decltype(p);
    using A = Accumulate<P>;
    visit_moment<A>(args.m.dtype, [&](auto m) {
      if constexpr (std::is_same_v<P, bfloat16>) {
        if (is_remainder(args)) return update<decltype(g), decltype(m), A>(args, SplitWeights(args), num_threads);
      }
      update<decltype(g), decltype(m), A>(args, Weights<P, A>(args), num_threads);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AdamW);

void CpuOps::compute(const GradientFactorArgs& args) {
  const double num_targets = *args.num_targets.as<double>(),
               loss_scale = args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1.0;
  const double correction = num_targets > 0 ? args.expected_targets / num_targets / loss_scale : 0.0;
  double &norm = *args.norm.as<double>(), &factor = *args.factor.as<double>();
  norm = std::sqrt(*args.sum_of_squares.as<double>()) * correction;
  factor = correction * (args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0);
  if (!std::isfinite(norm)) factor = std::numeric_limits<double>::quiet_NaN();
}

void CpuOps::compute(const AdamWArgs& args) { HWY_DYNAMIC_DISPATCH(AdamW)(args, num_threads_); }

}  // namespace echelon
#endif
