// How fast products are, measured against this machine's multiply-adds. Run only when ECHELON_TIMED_TESTS is set: on a busy machine the numbers mean nothing.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/timed_test.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Multiply-adds on 12 independent vectors, enough to hide their latency. Returns the flops done; adds to `sink`, so that nothing is optimised away.
double MultiplyAdds(long repeats, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999F), y = hn::Set(d, 1e-3F);
  auto a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, m = a;
  for (long repeat = 0; repeat < repeats; ++repeat) {
    a = hn::MulAdd(a, x, y), b = hn::MulAdd(b, x, y), c = hn::MulAdd(c, x, y), e = hn::MulAdd(e, x, y);
    f = hn::MulAdd(f, x, y), g = hn::MulAdd(g, x, y), h = hn::MulAdd(h, x, y), i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y), k = hn::MulAdd(k, x, y), l = hn::MulAdd(l, x, y), m = hn::MulAdd(m, x, y);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(hn::Add(h, i), hn::Add(hn::Add(j, k), hn::Add(l, m)))));
  *sink += hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * 12.0 * static_cast<double>(repeats) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "numbers.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace echelon {
namespace {

HWY_EXPORT(MultiplyAdds);

/// The largest flops per second of some calls of f, which returns the flops it did.
template <class F>
double best_rate(int calls, F&& f) {
  double best = 0;
  for (int call = 0; call < calls; ++call) {
    const auto start = std::chrono::steady_clock::now();
    const double flops = f();
    best = std::max(best, flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

TEST(TimedCpuOps, ProductsReachSixtyPercentOfTheMultiplyAddPeak) {
  if (std::getenv("ECHELON_TIMED_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_TIMED_TESTS to measure";
  float sink = 0;
  const double peak = best_rate(10, [&] { return HWY_DYNAMIC_DISPATCH(MultiplyAdds)(2'000'000, &sink); });
  CpuOps ops({});
  const std::int64_t M = 1024, N = 768, K = 768;
  const Numbers x = Numbers::random(DType::float32, {M, K}, 1), w = Numbers::random(DType::float32, {N, K}, 2), y(DType::float32, {M, N});
  const double rate = best_rate(10, [&] {
    ops.matmul({.a = x, .b = w, .c = y, .transpose_b = true});
    return 2.0 * static_cast<double>(M * N * K);
  });
  const std::int64_t B = 1, T = 1024, H = 12, C = 64;
  const Numbers q = Numbers::random(DType::float32, {B, T, H, C}, 3), out(DType::float32, {B, T, H, C}), lse(DType::float32, {B, H, T});
  const double attention = best_rate(5, [&] {
    ops.attention({.q = q, .k = q, .v = q, .out = out, .lse = lse, .scale = 0.125});
    return 2.0 * static_cast<double>(B * H * C * T * (T + 1));
  });
  const Numbers dq(DType::float32, {B, T, H, C}), dk = dq, dv = dq, delta = lse;
  const double backward = best_rate(5, [&] {
    ops.attention_backward({.q = q, .k = q, .v = q, .out = out, .lse = lse, .dout = q, .dq = dq, .dk = dk, .dv = dv, .delta = delta, .scale = 0.125});
    return 5.0 * static_cast<double>(B * H * C * T * (T + 1));
  });
  std::printf("%s: multiply-adds %.1f GFLOP/s (sink %g), matmul %.1f (%.0f %%), attention %.1f, attention_backward %.1f\n", blas_description().c_str(),
              peak / 1e9, static_cast<double>(sink), rate / 1e9, 100 * rate / peak, attention / 1e9, backward / 1e9);
  EXPECT_GE(rate, 0.6 * peak);
}

}  // namespace
}  // namespace echelon
#endif
