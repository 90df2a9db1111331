// How fast attention is, forward and backward: bench_attention [repeats [threads [rows]]]
//
// Times are the smallest of the repeats: of one thread its processor time, so that others on the same core count less,
// of several the wall time. Flops are those of visible pairs of queries and keys (ops/operations/attention.h), compared
// with the multiply-adds of as many cores, measured here. The share of exp is what as many exponentials take alone, out
// of the first cache. Rows: only those that start so, e.g. "float32 16". attention.py measures PyTorch.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/attention.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/exponential-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// In place. Returns how many.
double Exponentials(float* x, std::size_t count) {
  const Tag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(exp2<float>(hn::Neg(hn::LoadU(d, x + i))), d, x + i);
  return static_cast<double>(count);
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/clock.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/peaks.h"
#include "ops/description.h"
#include "ops/numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>

namespace echelon {
namespace {

HWY_EXPORT(Exponentials);

struct Options {
  int repeats = 5, num_threads = 1;
  std::string rows = {};
};

template <class F>
double least_seconds(const Options& options, F&& f) {
  const auto seconds = [&] { return options.num_threads == 1 ? thread_seconds() : now_seconds(); };
  double least = 1e30;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const double start = seconds();
    f();
    least = std::min(least, seconds() - start);
  }
  return least;
}

struct Shape {
  std::int64_t B, T, H, K, C;
};

struct Rates {
  double multiply_adds = 0, exponentials = 0;  // per second
};

Rates measure_rates(int num_threads) {
  const double multiply_adds = measure_multiply_adds(DType::float32, {.num_threads = num_threads, .seconds = 0.5});
  std::vector<float> x(4096, 0.7F);
  constexpr int passes = 200;
  const double seconds = least_seconds({.repeats = 20}, [&] {
    for (int pass = 0; pass < passes; ++pass) HWY_DYNAMIC_DISPATCH(Exponentials)(x.data(), x.size());
  });
  return {multiply_adds, num_threads * passes * static_cast<double>(x.size()) / seconds};
}

void measure(const Shape& s, DType dtype, const Rates& rates, const Options& options) {
  const std::string row = fmt::format("{:8} {:3} {:5} {:3} {:3} {:4}", name_of(dtype), s.B, s.T, s.H, s.K, s.C);
  if (!row.starts_with(options.rows)) return;
  const Sizes queries = {s.B, s.T, s.H, s.C}, keys = {s.B, s.T, s.K, s.C}, rows = {s.B, s.H, s.T};
  const Numbers q = Numbers::random(dtype, queries, 1), k = Numbers::random(dtype, keys, 2),
                v = Numbers::random(dtype, keys, 3), out(dtype, queries);
  const Numbers dout = Numbers::random(dtype, queries, 4), dq(dtype, queries), dk(dtype, keys), dv(dtype, keys);
  const Numbers lse(accumulate_dtype(dtype), rows), delta = lse;
  const double scale = 1 / std::sqrt(static_cast<double>(s.C));
  CpuOps ops({.num_threads = options.num_threads});
  const AttentionArgs forward{.q = q, .k = k, .v = v, .out = out, .lse = lse, .scale = scale, .group = s.H / s.K};
  const AttentionBackwardArgs backward{.q = q,
                                       .k = k,
                                       .v = v,
                                       .out = out,
                                       .lse = lse,
                                       .dout = dout,
                                       .dq = dq,
                                       .dk = dk,
                                       .dv = dv,
                                       .delta = delta,
                                       .scale = scale,
                                       .group = s.H / s.K};
  const double seconds[] = {least_seconds(options, [&] { ops.attention(forward); }),
                            least_seconds(options, [&] { ops.attention_backward(backward); })};
  const double flops[] = {static_cast<double>(cost(forward).flops), static_cast<double>(cost(backward).flops)};
  const double exp_seconds = static_cast<double>(s.B * s.H * num_visible_pairs(s.T, s.T)) / rates.exponentials;
  fmt::print("{}", row);
  for (const int n : {0, 1})
    fmt::print("   {:8.2f} ms {:6.1f} GFLOP/s {:4.0f} % exp {:3.0f} %", seconds[n] * 1e3, flops[n] / seconds[n] / 1e9,
               100 * flops[n] / seconds[n] / rates.multiply_adds, 100 * exp_seconds / seconds[n]);
  fmt::print("\n");
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  const Options options{.repeats = argc > 1 ? std::atoi(argv[1]) : 5,
                        .num_threads = argc > 2 ? std::atoi(argv[2]) : 1,
                        .rows = argc > 3 ? argv[3] : ""};
  const Rates rates = measure_rates(options.num_threads);
  fmt::print("multiply-adds {:.1f} GFLOP/s, exponentials {:.2f} G/s\n", rates.multiply_adds / 1e9,
             rates.exponentials / 1e9);
  fmt::print("dtype      B     T   H   K    C   forward                                     backward\n");
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const Shape& shape : {Shape{16, 256, 6, 6, 64},
                               {1, 1024, 12, 12, 64},
                               {4, 1024, 12, 12, 64},
                               {1, 2048, 12, 12, 64},
                               {1, 2048, 12, 4, 64},
                               {1, 2048, 6, 6, 128},
                               {1, 16384, 4, 2, 64},
                               {1, 16384, 1, 1, 64}})
      measure(shape, dtype, rates, options);
}
#endif
