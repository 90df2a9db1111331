// The factor of gradients, and AdamW (Loshchilov and Hutter 2019) in the order of operations of PyTorch's single-tensor implementation; the formulas stand in
// ops/ops.h.
#include "ops/check.h"
#include "ops/host_scalars.h"
#include "ops/reference/reference_ops.h"
#include "ops/rounding_noise.h"
#include "ops/visit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

/// x as a moment of format M.
template <class M, class A>
M rounded(A x, [[maybe_unused]] std::uint32_t random) {
  if constexpr (std::is_same_v<M, A>) {
    return x;
  } else {
    M result;
    result.bits = stochastic_bfloat16(static_cast<float>(x), random);
    return result;
  }
}

template <class P, class G, class M, class A = Accumulate<P>>
void update(const AdamWArgs& args) {
  const AdamWScalars now = scalars_of(args);
  if (std::isnan(now.grad_scale)) return;
  const RoundingNoise noise = at_step(args.noise, now.step);
  const A decay = static_cast<A>(1 - now.lr * args.weight_decay), step_size = static_cast<A>(now.step_size);
  const A sqrt_bias2 = static_cast<A>(now.sqrt_bias2), eps = static_cast<A>(args.eps), beta2 = static_cast<A>(args.beta2);
  const A one_minus_beta1 = static_cast<A>(1 - args.beta1), one_minus_beta2 = static_cast<A>(1 - args.beta2);
  for (std::int64_t i = 0; i < args.master.num_elements(); ++i) {
    A &p = args.master.as<A>()[i], m = to<A>(args.m.as<M>()[i]), v = to<A>(args.v.as<M>()[i]);
    const A g = static_cast<A>(now.grad_scale) * to<A>(args.grad.as<G>()[i]);
    p *= decay;
    m += one_minus_beta1 * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    p -= step_size * m / (std::sqrt(v) / sqrt_bias2 + eps);
    args.param.as<P>()[i] = to<P>(p);
    const std::uint32_t random = std::is_same_v<M, A> ? 0 : noise_word(noise, i);
    args.m.as<M>()[i] = rounded<M>(m, random);
    args.v.as<M>()[i] = rounded<M>(v, random >> 16);
  }
}

}  // namespace

void ReferenceOps::gradient_factor(const GradientFactorArgs& args) {
  check(args);
  const double num_targets = *args.num_targets.as<double>(), loss_scale = args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1.0;
  const double correction = num_targets > 0 ? args.expected_targets / num_targets / loss_scale : 0.0;
  const double norm = std::sqrt(*args.sum_of_squares.as<double>()) * correction;
  const double clipping = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  *args.norm.as<double>() = norm;
  *args.factor.as<double>() = std::isfinite(norm) ? correction * clipping : std::numeric_limits<double>::quiet_NaN();
}

void ReferenceOps::adamw(const AdamWArgs& args) {
  check(args);
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) {
    visit_moment<Accumulate<decltype(p)>>(args.m.dtype, [&](auto m) { update<decltype(p), decltype(g), decltype(m)>(args); });
  });
}

}  // namespace echelon
