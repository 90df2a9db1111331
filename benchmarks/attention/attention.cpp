// How fast attention is, forward and backward, on one thread: bench_attention [repeats]
//
// Times are the processor time of this thread, the smallest of the repeats, so that others on the same core count less.
// Flops are those of visible pairs of queries and keys (ops/operations/attention.h), against the multiply-adds of a
// core that has all operands in registers, measured here. The share of exp is what as many exponentials take alone, out
// of the first cache. attention.py does the same for PyTorch.
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

/// Independent sums, enough to hide the latency of two units. Returns the flops done; adds to `sink`, so that nothing
/// is optimised away.
double MultiplyAdds(long repeats, float* sink) {
  const Tag<float> d;
  constexpr int rows = 3, columns = 4;
  Vec<float> x[rows], y[columns], sums[rows][columns];
  for (int r = 0; r < rows; ++r) x[r] = hn::Set(d, *sink / static_cast<float>(r + 2));
  for (int c = 0; c < columns; ++c) y[c] = hn::Set(d, *sink / static_cast<float>(c + 1));
  for (auto& row : sums)
    for (auto& sum : row) sum = hn::Zero(d);
  for (long repeat = 0; repeat < repeats; ++repeat)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) sums[r][c] = hn::MulAdd(x[r], y[c], sums[r][c]);
  auto total = hn::Zero(d);
  for (auto& row : sums)
    for (auto& sum : row) total = hn::Add(total, sum);
  *sink += 1e-30F * hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * rows * columns * static_cast<double>(repeats) * static_cast<double>(hn::Lanes(d));
}

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
#include "ops/description.h"
#include "ops/numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace echelon {
namespace {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(Exponentials);

template <class F>
double least_seconds(int repeats, F&& f) {
  double least = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double start = thread_seconds();
    f();
    least = std::min(least, thread_seconds() - start);
  }
  return least;
}

struct Shape {
  std::int64_t B, T, H, K, C;
};

struct Rates {
  double multiply_adds = 0, exponentials = 0;  // per second
};

Rates measure_rates() {
  float sink = 0.1F;
  double flops = 0;
  const double seconds = least_seconds(20, [&] { flops = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(1'000'000, &sink); });
  std::vector<float> x(4096, 0.7F);
  constexpr int passes = 200;
  const double exp_seconds = least_seconds(20, [&] {
    for (int pass = 0; pass < passes; ++pass) HWY_DYNAMIC_DISPATCH(Exponentials)(x.data(), x.size());
  });
  return {flops / seconds, passes * static_cast<double>(x.size()) / exp_seconds};
}

void measure(const Shape& s, DType dtype, const Rates& rates, int repeats) {
  const Sizes queries = {s.B, s.T, s.H, s.C}, keys = {s.B, s.T, s.K, s.C}, rows = {s.B, s.H, s.T};
  const Numbers q = Numbers::random(dtype, queries, 1), k = Numbers::random(dtype, keys, 2),
                v = Numbers::random(dtype, keys, 3), out(dtype, queries);
  const Numbers dout = Numbers::random(dtype, queries, 4), dq(dtype, queries), dk(dtype, keys), dv(dtype, keys);
  const Numbers lse(accumulate_dtype(dtype), rows), delta = lse;
  const double scale = 1 / std::sqrt(static_cast<double>(s.C));
  CpuOps ops({});
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
  const double seconds[] = {least_seconds(repeats, [&] { ops.attention(forward); }),
                            least_seconds(repeats, [&] { ops.attention_backward(backward); })};
  const double flops[] = {static_cast<double>(cost(forward).flops), static_cast<double>(cost(backward).flops)};
  const double exp_seconds = static_cast<double>(s.B * s.H * num_visible_pairs(s.T, s.T)) / rates.exponentials;
  fmt::print("{:8} {:3} {:5} {:3} {:3} {:4}", name_of(dtype), s.B, s.T, s.H, s.K, s.C);
  for (const int n : {0, 1})
    fmt::print("   {:8.2f} ms {:6.1f} GFLOP/s {:4.0f} % exp {:3.0f} %", seconds[n] * 1e3, flops[n] / seconds[n] / 1e9,
               100 * flops[n] / seconds[n] / rates.multiply_adds, 100 * exp_seconds / seconds[n]);
  fmt::print("\n");
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 5;
  const Rates rates = measure_rates();
  fmt::print("multiply-adds {:.1f} GFLOP/s, exponentials {:.2f} G/s\n", rates.multiply_adds / 1e9,
             rates.exponentials / 1e9);
  fmt::print("dtype      B     T   H   K    C   forward                                     backward\n");
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const Shape& shape : {Shape{16, 256, 6, 6, 64},
                               {1, 1024, 12, 12, 64},
                               {4, 1024, 12, 12, 64},
                               {1, 2048, 12, 12, 64},
                               {1, 2048, 12, 4, 64},
                               {1, 2048, 6, 6, 128}})
      measure(shape, dtype, rates, repeats);
}
#endif
