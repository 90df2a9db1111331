// One AdamW step (Loshchilov and Hutter 2019) in one pass over memory; the formula stands in ops/ops.h.
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

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class P, class G>
void update(const AdamWArgs& args, int num_threads) {
  using A = Accumulate<P>;
  const Tag<A> d;
  const auto number = [d](double x) HWY_ATTR { return hn::Set(d, static_cast<A>(x)); };
  const double step = static_cast<double>(args.step), bias1 = 1 - std::pow(args.beta1, step), bias2 = 1 - std::pow(args.beta2, step);
  const auto decay = number(1 - args.lr * args.weight_decay), step_size = number(args.lr / bias1), inverse_sqrt_bias2 = number(1 / std::sqrt(bias2));
  const auto eps = number(args.eps), grad_scale = number(args.grad_scale), beta2 = number(args.beta2);
  const auto one_minus_beta1 = number(1 - args.beta1), one_minus_beta2 = number(1 - args.beta2);
  A *master = args.master.as<A>(), *m = args.m.as<A>(), *v = args.v.as<A>();
  const G* grad = args.grad.as<G>();
  P* param = args.param.as<P>();
  const bool writes_param = args.param.data != args.master.data;
  divide({args.master.num_elements(), 4, 64, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR {
    for_lanes<A>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto g = hn::Mul(grad_scale, lanes.load(grad + i)), m_before = lanes.load(m + i);
      const auto m_i = hn::MulAdd(one_minus_beta1, hn::Sub(g, m_before), m_before);
      const auto v_i = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, lanes.load(v + i)));
      const auto denominator = hn::MulAdd(hn::Sqrt(v_i), inverse_sqrt_bias2, eps);
      const auto p = hn::Sub(hn::Mul(lanes.load(master + i), decay), hn::Div(hn::Mul(step_size, m_i), denominator));
      lanes.store(m_i, m + i);
      lanes.store(v_i, v + i);
      lanes.store(p, master + i);
      if (writes_param) lanes.store(p, param + i);
    });
  });
}

void AdamW(const AdamWArgs& args, int num_threads) {
  visit_pair(args.param.dtype, args.grad.dtype, [&](auto p, auto g) { update<decltype(p), decltype(g)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AdamW);

void CpuOps::adamw(const AdamWArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(AdamW)(args, num_threads_);
}

}  // namespace echelon
#endif
