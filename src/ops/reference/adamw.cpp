// The factor of gradients, and AdamW (Loshchilov and Hutter 2019) in the order of operations of PyTorch's single-tensor
// implementation; formulas: ops/operations/optimizer.h.
#include "ops/reference/reference_ops.h"
#include "ops/rounding_noise.h"
#include "ops/visit.h"
#include "tensor/remainder.h"

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

/// p[i], and where it is kept.
template <class P, class A>
struct Weights {
  explicit Weights(const AdamWArgs& args) : args_(args) {}

  [[nodiscard]] A at(std::int64_t i) const { return args_.master.as<A>()[i]; }
  void set(std::int64_t i, A p) const {
    args_.master.as<A>()[i] = p;
    args_.param.as<P>()[i] = to<P>(p);
  }

 private:
  const AdamWArgs& args_;
};
struct SplitWeights {
  explicit SplitWeights(const AdamWArgs& args)
      : upper_(args.param.as<bfloat16>()), remainder_(args.master.as<std::int16_t>()) {}

  [[nodiscard]] float at(std::int64_t i) const { return joined({upper_[i].bits, remainder_[i]}); }
  void set(std::int64_t i, float p) const {
    const SplitFloat parts = split(p);
    upper_[i].bits = parts.upper;
    remainder_[i] = parts.remainder;
  }

 private:
  bfloat16* upper_;
  std::int16_t* remainder_;
};

template <class G, class M, class A, class W>
void update(const AdamWArgs& args, const W& weights) {
  const AdamWScalars now = scalars_of(args);
  if (std::isnan(now.grad_scale)) return;
  const RoundingNoise noise = at_step(args.noise, now.step);
  const A decay = static_cast<A>(1 - now.lr * args.weight_decay), step_size = static_cast<A>(now.step_size);
  const A sqrt_bias2 = static_cast<A>(now.sqrt_bias2), eps = static_cast<A>(args.eps),
          beta2 = static_cast<A>(args.beta2);
  const A one_minus_beta1 = static_cast<A>(1 - args.beta1), one_minus_beta2 = static_cast<A>(1 - args.beta2);
  for (std::int64_t i = 0; i < args.master.num_elements(); ++i) {
    A p = weights.at(i), m = to<A>(args.m.as<M>()[i]), v = to<A>(args.v.as<M>()[i]);
    const A g = static_cast<A>(now.grad_scale) * to<A>(args.grad.as<G>()[i]);
    p *= decay;
    m += one_minus_beta1 * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    p -= step_size * m / (std::sqrt(v) / sqrt_bias2 + eps);
    weights.set(i, p);
    const std::uint32_t random = std::is_same_v<M, A> ? 0 : noise_word(noise, i);
    args.m.as<M>()[i] = rounded<M>(m, random);
    args.v.as<M>()[i] = rounded<M>(v, random >> 16);
  }
}

}  // namespace

void ReferenceOps::compute(const GradientFactorArgs& args) {
  const double num_targets = *args.num_targets.as<double>(),
               loss_scale = args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1.0;
  const double correction = num_targets > 0 ? args.expected_targets / num_targets / loss_scale : 0.0;
  const double norm = std::sqrt(*args.sum_of_squares.as<double>()) * correction;
  const double clipping = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  *args.norm.as<double>() = norm;
  *args.factor.as<double>() = std::isfinite(norm) ? correction * clipping : std::numeric_limits<double>::quiet_NaN();
}

void ReferenceOps::compute(const AdamWArgs& args) {
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) {
    using P = decltype(p);
    using A = Accumulate<P>;
    visit_moment<A>(args.m.dtype, [&](auto m) {
      if constexpr (std::is_same_v<P, bfloat16>) {
        if (is_remainder(args)) return update<decltype(g), decltype(m), A>(args, SplitWeights(args));
      }
      update<decltype(g), decltype(m), A>(args, Weights<P, A>(args));
    });
  });
}

}  // namespace echelon
