// Rotary positions: every pair (x[i], x[i + R/2]) of a head is turned by its position's angle, both loaded before
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
#include "ops/cpu/trigonometry-inl.h"

#include <vector>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// The cosines and sines of one token, R / 2 each.
template <class A>
struct Turn {
  const A *cos, *sin;
};

template <class T, class A>
HWY_INLINE void turn_head(const RopeArgs& args, std::int64_t row, Turn<A> by) {
  const std::int64_t C = args.x.size(3), half = args.num_pairs();
  const auto sign = hn::Set(Tag<A>(), args.inverse ? A{-1} : A{1});
  const T* x = args.x.as<T>() + row * C;
  T* y = args.y.as<T>() + row * C;
  for_lanes<A>(0, half, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto x1 = lanes.load(x + i), x2 = lanes.load(x + half + i), c = lanes.load(by.cos + i),
               s = hn::Mul(sign, lanes.load(by.sin + i));
    lanes.store(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), y + i);
    lanes.store(hn::MulAdd(x1, s, hn::Mul(x2, c)), y + half + i);
  });
}

template <class T>
void rotate_by_tables(const RopeArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t seq_len = args.x.size(1), H = args.x.size(2), C = args.x.size(3), half = args.num_pairs(),
                     rows = args.x.size(0) * seq_len * H;
  divide({rows, C, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = (args.first_position + row / H % seq_len) * half;
      turn_head<T, A>(args, row, {args.cos.as<A>() + at, args.sin.as<A>() + at});
    }
  });
}

/// Angles are computed once for all heads of a token.
template <class T>
void rotate_by_angles(const RopeArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t H = args.x.size(2), C = args.x.size(3), half = args.num_pairs(),
                     N = args.x.size(0) * args.x.size(1);
  divide({N, (H + 4) * C, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    std::vector<A> cos(static_cast<std::size_t>(half)), sin(cos.size());
    for (std::int64_t token = first; token < last; ++token) {
      const auto scale = hn::Set(Tag<double>(), args.scale_at(args.positions.as<std::int32_t>()[token]));
      const auto position = hn::Set(Tag<double>(), static_cast<double>(args.positions.as<std::int32_t>()[token]));
      for_lanes<double>(0, half, [&](auto lanes, std::int64_t i) HWY_ATTR {
        const SinCos of = sin_and_cos(hn::Mul(position, lanes.load(args.frequencies.as<double>() + i)));
        lanes.store(hn::Mul(scale, of.cos), cos.data() + i);
        lanes.store(hn::Mul(scale, of.sin), sin.data() + i);
      });
      for (std::int64_t h = 0; h < H; ++h) turn_head<T, A>(args, token * H + h, {cos.data(), sin.data()});
    }
  });
}

void Rope(const RopeArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) {
    args.has_tables() ? rotate_by_tables<decltype(t)>(args, num_threads)
                      : rotate_by_angles<decltype(t)>(args, num_threads);
  });
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
