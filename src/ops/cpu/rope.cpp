// Rotary positions: every pair (x[i], x[i + C/2]) of a head is turned by its position's angle, both loaded before
// either is stored, so y may be x.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rope.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class T>
void rotate(const RopeArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t seq_len = args.x.size(1), H = args.x.size(2), C = args.x.size(3), half = C / 2,
                     rows = args.x.size(0) * seq_len * H;
  const auto sign = hn::Set(Tag<A>(), args.inverse ? A{-1} : A{1});
  divide({rows, C, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t position = args.first_position + row / H % seq_len;
      const A *cos = args.cos.as<A>() + position * half, *sin = args.sin.as<A>() + position * half;
      const T* x = args.x.as<T>() + row * C;
      T* y = args.y.as<T>() + row * C;
      for_lanes<A>(0, half, [=](auto lanes, std::int64_t i) HWY_ATTR {
        const auto x1 = lanes.load(x + i), x2 = lanes.load(x + half + i), c = lanes.load(cos + i),
                   s = hn::Mul(sign, lanes.load(sin + i));
        lanes.store(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), y + i);
        lanes.store(hn::MulAdd(x1, s, hn::Mul(x2, c)), y + half + i);
      });
    }
  });
}

void Rope(const RopeArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) { rotate<decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Rope);

void CpuOps::compute(const RopeArgs& args) { HWY_DYNAMIC_DISPATCH(Rope)(args, num_threads_); }

}  // namespace echelon
#endif
