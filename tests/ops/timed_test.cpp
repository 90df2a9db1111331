// How fast products are, measured against this machine's multiply-adds. Run only when ECHELON_TIMED_TESTS is set: on a
// busy machine the numbers mean nothing.
#include "base/clock.h"
#include "numbers.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/peaks.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace echelon {
namespace {

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

// Loose bounds that hold on any machine.
TEST(Peaks, AreRatesOfAMachine) {
  const double single = measure_multiply_adds(DType::float32, {.seconds = 0.01}),
               both = measure_multiply_adds(DType::float64, {.num_threads = 2, .seconds = 0.01});
  EXPECT_GT(single, 1e8);
  EXPECT_GT(both, 1e8);
  EXPECT_EQ(measure_multiply_adds(DType::int32, {.seconds = 0.01}), 0);
  BandwidthMeter memory;
  for (const MemoryPattern pattern : {MemoryPattern::copy, MemoryPattern::triad, MemoryPattern::read}) {
    const double rate = memory.measure(pattern, {.num_threads = 2, .seconds = 0.01});
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e13);
  }
}

TEST(TimedCpuOps, ProductsReachSixtyPercentOfTheMultiplyAddPeak) {
  if (std::getenv("ECHELON_TIMED_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_TIMED_TESTS to measure";
  const double peak = measure_multiply_adds(DType::float32, {.seconds = 0.2});
  CpuOps ops({});
  const std::int64_t M = 1024, N = 768, K = 768;
  const Numbers x = Numbers::random(DType::float32, {M, K}, 1), w = Numbers::random(DType::float32, {N, K}, 2),
                y(DType::float32, {M, N});
  const double rate = best_rate(10, [&] {
    ops.matmul({.a = x, .b = w, .c = y, .transpose_b = true});
    return 2.0 * static_cast<double>(M * N * K);
  });
  const std::int64_t B = 1, T = 1024, H = 12, C = 64;
  const Numbers q = Numbers::random(DType::float32, {B, T, H, C}, 3), out(DType::float32, {B, T, H, C}),
                lse(DType::float32, {B, H, T});
  const double attention = best_rate(5, [&] {
    ops.attention({.q = q, .k = q, .v = q, .out = out, .lse = lse, .scale = 0.125});
    return 2.0 * static_cast<double>(B * H * C * T * (T + 1));
  });
  const Numbers dq(DType::float32, {B, T, H, C}), dk = dq, dv = dq, delta = lse;
  const double backward = best_rate(5, [&] {
    ops.attention_backward({.q = q,
                            .k = q,
                            .v = q,
                            .out = out,
                            .lse = lse,
                            .dout = q,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .delta = delta,
                            .scale = 0.125});
    return 5.0 * static_cast<double>(B * H * C * T * (T + 1));
  });
  std::printf("%s: multiply-adds %.1f GFLOP/s, matmul %.1f (%.0f %%), attention %.1f, attention_backward %.1f\n",
              describe_products(choose_products({})).c_str(), peak / 1e9, rate / 1e9, 100 * rate / peak,
              attention / 1e9, backward / 1e9);
  EXPECT_GE(rate, 0.6 * peak);
}

}  // namespace
}  // namespace echelon
