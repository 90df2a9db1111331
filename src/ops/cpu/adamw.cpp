// The factor of gradients, and one AdamW step (Loshchilov and Hutter 2019) in one pass over memory; the formulas stand in ops/ops.h.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/adamw.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/host_scalars.h"
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

/// The elements [first, last) of the moments, at most a buffer's; the random words of four elements are made together.
void round_moments(const AdamWArgs& args, const RoundingNoise& noise, const MomentBuffers<float>& from, std::int64_t first, std::int64_t last) {
  bfloat16 *m = args.m.as<bfloat16>(), *v = args.v.as<bfloat16>();
  std::array<std::uint32_t, 4> words = {};
  std::int64_t block = -1;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t index = global_index(noise, i);
    if (index / 4 != block) words = noise_block(noise, block = index / 4);
    const std::uint32_t random = words[static_cast<std::size_t>(index % 4)];
    m[i].bits = stochastic_bfloat16(from.m[i - first], random);
    v[i].bits = stochastic_bfloat16(from.v[i - first], random >> 16);
  }
}

template <class P, class G, class M>
void update(const AdamWArgs& args, int num_threads) {
  using A = Accumulate<P>;
  const Tag<A> d;
  const auto number = [d](double x) HWY_ATTR { return hn::Set(d, static_cast<A>(x)); };
  const AdamWScalars now = scalars_of(args);
  if (std::isnan(now.grad_scale)) return;
  [[maybe_unused]] const RoundingNoise noise = at_step(args.noise, now.step);
  const auto decay = number(1 - now.lr * args.weight_decay), step_size = number(now.step_size), inverse_sqrt_bias2 = number(1 / now.sqrt_bias2);
  const auto eps = number(args.eps), grad_scale = number(now.grad_scale), beta2 = number(args.beta2);
  const auto one_minus_beta1 = number(1 - args.beta1), one_minus_beta2 = number(1 - args.beta2);
  constexpr bool rounds = !std::is_same_v<M, A>;
  A* master = args.master.as<A>();
  M *m = args.m.as<M>(), *v = args.v.as<M>();
  const G* grad = args.grad.as<G>();
  P* param = args.param.as<P>();
  const bool writes_param = args.param.data != args.master.data;
  divide({args.master.num_elements(), 4, 64, num_threads}, [=](std::int64_t begin, std::int64_t end) HWY_ATTR {
    MomentBuffers<A> buffers;
    const std::int64_t block = rounds ? buffers.count : end - begin;
    for (std::int64_t first = begin; first < end; first += block) {
      const std::int64_t last = std::min(end, first + block);
      A *m_after = rounds ? buffers.m : reinterpret_cast<A*>(m + first), *v_after = rounds ? buffers.v : reinterpret_cast<A*>(v + first);
      for_lanes<A>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
        const auto g = hn::Mul(grad_scale, lanes.load(grad + i)), m_before = lanes.load(m + i);
        const auto m_i = hn::MulAdd(one_minus_beta1, hn::Sub(g, m_before), m_before);
        const auto v_i = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, lanes.load(v + i)));
        const auto denominator = hn::MulAdd(hn::Sqrt(v_i), inverse_sqrt_bias2, eps);
        const auto p = hn::Sub(hn::Mul(lanes.load(master + i), decay), hn::Div(hn::Mul(step_size, m_i), denominator));
        lanes.store(m_i, m_after + i - first);
        lanes.store(v_i, v_after + i - first);
        lanes.store(p, master + i);
        if (writes_param) lanes.store(p, param + i);
      });
      if constexpr (rounds) round_moments(args, noise, buffers, first, last);
    }
  });
}

void AdamW(const AdamWArgs& args, int num_threads) {
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) {
    visit_moment<Accumulate<decltype(p)>>(args.m.dtype, [&](auto m) { update<decltype(p), decltype(g), decltype(m)>(args, num_threads); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AdamW);

void CpuOps::gradient_factor(const GradientFactorArgs& args) {
  check(args);
  const double num_targets = *args.num_targets.as<double>(), loss_scale = args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1.0;
  const double correction = num_targets > 0 ? args.expected_targets / num_targets / loss_scale : 0.0;
  double &norm = *args.norm.as<double>(), &factor = *args.factor.as<double>();
  norm = std::sqrt(*args.sum_of_squares.as<double>()) * correction;
  factor = correction * (args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0);
  if (!std::isfinite(norm)) factor = std::numeric_limits<double>::quiet_NaN();
}

void CpuOps::adamw(const AdamWArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(AdamW)(args, num_threads_);
}

}  // namespace echelon
#endif
