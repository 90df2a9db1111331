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

/// The multiply-adds of a product whose operands are all in registers: 3 x 4 independent sums, enough to hide their latency. Returns the flops done; adds to
/// `sink`, so that nothing is optimised away.
double MultiplyAdds(long repeats, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x0 = hn::Set(d, *sink), x1 = hn::Set(d, 0.5F), x2 = hn::Set(d, 0.25F);
  const auto y0 = hn::Set(d, 1e-3F), y1 = hn::Set(d, 2e-3F), y2 = hn::Set(d, 3e-3F), y3 = hn::Set(d, 4e-3F);
  auto a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, m = a;
  for (long repeat = 0; repeat < repeats; ++repeat) {
    a = hn::MulAdd(x0, y0, a), b = hn::MulAdd(x0, y1, b), c = hn::MulAdd(x0, y2, c), e = hn::MulAdd(x0, y3, e);
    f = hn::MulAdd(x1, y0, f), g = hn::MulAdd(x1, y1, g), h = hn::MulAdd(x1, y2, h), i = hn::MulAdd(x1, y3, i);
    j = hn::MulAdd(x2, y0, j), k = hn::MulAdd(x2, y1, k), l = hn::MulAdd(x2, y2, l), m = hn::MulAdd(x2, y3, m);
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

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace echelon {
namespace {

HWY_EXPORT(MultiplyAdds);

/// Of this thread alone, so that others on the same core count less.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The largest flops per second of some calls of f, which returns the flops it did.
template <class F>
double best_rate(int calls, F&& f) {
  double best = 0;
  for (int call = 0; call < calls; ++call) {
    const double start = thread_seconds();
    const double flops = f();
    best = std::max(best, flops / (thread_seconds() - start));
  }
  return best;
}

TEST(TimedCpuOps, ProductsReachSixtyPercentOfTheMultiplyAddPeak) {
  if (std::getenv("ECHELON_TIMED_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_TIMED_TESTS to measure";
  float sink = 0.1F;
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
  std::printf("%s: multiply-adds %.1f GFLOP/s, matmul %.1f (%.0f %%), attention %.1f, attention_backward %.1f\n", blas_description().c_str(), peak / 1e9,
              rate / 1e9, 100 * rate / peak, attention / 1e9, backward / 1e9);
  EXPECT_GT(sink, 0);  // so it was needed
  EXPECT_GE(rate, 0.6 * peak);
}

}  // namespace
}  // namespace echelon
#endif
