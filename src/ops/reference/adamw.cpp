// AdamW (Loshchilov and Hutter 2019) in the order of operations of PyTorch's single-tensor implementation; the formula stands in ops/ops.h.
#include "ops/check.h"
#include "ops/reference/reference_ops.h"
#include "ops/rounding_noise.h"
#include "ops/visit.h"

#include <cmath>

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
  const double bias1 = 1 - std::pow(args.beta1, static_cast<double>(args.step)), bias2 = 1 - std::pow(args.beta2, static_cast<double>(args.step));
  const A decay = static_cast<A>(1 - args.lr * args.weight_decay), step_size = static_cast<A>(args.lr / bias1);
  const A sqrt_bias2 = static_cast<A>(std::sqrt(bias2)), eps = static_cast<A>(args.eps), beta2 = static_cast<A>(args.beta2);
  const A one_minus_beta1 = static_cast<A>(1 - args.beta1), one_minus_beta2 = static_cast<A>(1 - args.beta2);
  for (std::int64_t i = 0; i < args.master.num_elements(); ++i) {
    A &p = args.master.as<A>()[i], m = to<A>(args.m.as<M>()[i]), v = to<A>(args.v.as<M>()[i]);
    const A g = static_cast<A>(args.grad_scale) * to<A>(args.grad.as<G>()[i]);
    p *= decay;
    m += one_minus_beta1 * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    p -= step_size * m / (std::sqrt(v) / sqrt_bias2 + eps);
    args.param.as<P>()[i] = to<P>(p);
    const std::uint32_t random = std::is_same_v<M, A> ? 0 : noise_word(args.noise, i);
    args.m.as<M>()[i] = rounded<M>(m, random);
    args.v.as<M>()[i] = rounded<M>(v, random >> 16);
  }
}

}  // namespace

void ReferenceOps::adamw(const AdamWArgs& args) {
  check(args);
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) {
    visit_moment<Accumulate<decltype(p)>>(args.m.dtype, [&](auto m) { update<decltype(p), decltype(g), decltype(m)>(args); });
  });
}

}  // namespace echelon
