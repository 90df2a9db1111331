// How fast attention is, forward and backward: bench_attention [repeats [threads [rows]]]
//
// Times are the smallest of the repeats: of one thread its processor time, so that others on the same core count less,
// of several the wall time. Flops are those of visible pairs of queries and keys (ops/operations/attention.h), compared
// with the multiply-adds of as many cores, measured here. The share of exp is what as many exponentials take alone, out
// of the first cache. Rows: only those that start so, e.g. "float32 16". attention.py measures PyTorch.
//
// Claim (speed): Attention by ranges is as fast as causal attention, and documents take time in proportion to their
//   pairs (query, key).
// Bound: 0.94 of the speed at T = 16,384; a pair takes up to 1.15 times as long in float32 and 1.40 in bfloat16 (AMX)
//   with documents of T / 16 tokens on average, 1.00 and 1.11 times at T = 65,536. Intel Granite Rapids, two threads.
// Run: build/release/bench_attention 3 2
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
#include "context/key_ranges.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/peaks.h"
#include "ops/description.h"
#include "ops/numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

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

/// Forward and backward of one shape, under any mask.
class Passes {
 public:
  Passes(const Shape& s, DType dtype, int num_threads)
      : q_(Numbers::random(dtype, {s.B, s.T, s.H, s.C}, 1)),
        k_(Numbers::random(dtype, {s.B, s.T, s.K, s.C}, 2)),
        v_(Numbers::random(dtype, {s.B, s.T, s.K, s.C}, 3)),
        dout_(Numbers::random(dtype, {s.B, s.T, s.H, s.C}, 4)),
        out_(dtype, {s.B, s.T, s.H, s.C}),
        dq_(dtype, {s.B, s.T, s.H, s.C}),
        dk_(dtype, {s.B, s.T, s.K, s.C}),
        dv_(dtype, {s.B, s.T, s.K, s.C}),
        lse_(accumulate_dtype(dtype), {s.B, s.H, s.T}),
        delta_(accumulate_dtype(dtype), {s.B, s.H, s.T}),
        scale_(1 / std::sqrt(static_cast<double>(s.C))),
        group_(s.H / s.K),
        ops_({.num_threads = num_threads}) {}

  [[nodiscard]] AttentionArgs forward(const AttentionMask& mask) const {
    return {.q = q_, .k = k_, .v = v_, .out = out_, .lse = lse_, .scale = scale_, .group = group_, .mask = mask};
  }
  [[nodiscard]] AttentionBackwardArgs backward(const AttentionMask& mask) const {
    return {.q = q_,
            .k = k_,
            .v = v_,
            .out = out_,
            .lse = lse_,
            .dout = dout_,
            .dq = dq_,
            .dk = dk_,
            .dv = dv_,
            .delta = delta_,
            .scale = scale_,
            .group = group_,
            .mask = mask};
  }
  void run_forward(const AttentionMask& mask) { ops_.attention(forward(mask)); }
  void run_backward(const AttentionMask& mask) { ops_.attention_backward(backward(mask)); }

 private:
  Numbers q_, k_, v_, dout_, out_, dq_, dk_, dv_, lse_, delta_;
  double scale_;
  std::int64_t group_;
  CpuOps ops_;
};

std::string row_of(const Shape& s, DType dtype) {
  return fmt::format("{:8} {:3} {:5} {:3} {:3} {:4}", name_of(dtype), s.B, s.T, s.H, s.K, s.C);
}

void measure(const Shape& s, DType dtype, const Rates& rates, const Options& options) {
  Passes passes(s, dtype, options.num_threads);
  const double seconds[] = {least_seconds(options, [&] { passes.run_forward({}); }),
                            least_seconds(options, [&] { passes.run_backward({}); })};
  const double flops[] = {static_cast<double>(cost(passes.forward({})).flops),
                          static_cast<double>(cost(passes.backward({})).flops)};
  const double exp_seconds = static_cast<double>(s.B * s.H * num_visible_pairs(s.T, s.T)) / rates.exponentials;
  fmt::print("{}", row_of(s, dtype));
  for (const int n : {0, 1})
    fmt::print("   {:8.2f} ms {:6.1f} GFLOP/s {:4.0f} % exp {:3.0f} %", seconds[n] * 1e3, flops[n] / seconds[n] / 1e9,
               100 * flops[n] / seconds[n] / rates.multiply_adds, 100 * exp_seconds / seconds[n]);
  fmt::print("\n");
}

/// Of B = 1: the ranges of a causal mask within documents.
class Ranges {
 public:
  Ranges(const DocumentOffsets& documents, std::int64_t T) : positions_(static_cast<std::size_t>(T)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    std::vector<std::int32_t> begin(positions_.size()), end(positions_.size());
    write_key_ranges({positions_, positions_}, {documents}, {begin, end});
    num_pairs_ = num_pairs(begin, end);
    begin_ = Numbers::tokens(begin);
    end_ = Numbers::tokens(end);
  }
  [[nodiscard]] AttentionMask mask() const {
    const Sizes sizes = {1, static_cast<std::int64_t>(positions_.size())};
    return {.begin = {begin_.tensor().data, DType::int32, sizes},
            .end = {end_.tensor().data, DType::int32, sizes},
            .num_pairs = num_pairs_};
  }

 private:
  std::vector<std::int32_t> positions_;
  Numbers begin_ = Numbers::tokens({0}), end_ = begin_;
  std::int64_t num_pairs_ = 0;
};

/// Lengths are exponential with mean T / 16, and at least 1.
DocumentOffsets short_documents(std::int64_t T) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> length(16 / static_cast<double>(T));
  DocumentOffsets documents = {0};
  while (documents.back() < T)
    documents.push_back(static_cast<std::int32_t>(
        std::min<std::int64_t>(T, documents.back() + 1 + static_cast<std::int64_t>(length(random)))));
  return documents;
}

/// A causal mask, the same as ranges, and documents, in turns. Printed: what ranges take of the speed, and the time of
/// a pair within documents relative to that of a pair of the whole sequence.
void measure_ranges(const Shape& s, DType dtype, const Options& options) {
  Passes passes(s, dtype, options.num_threads);
  const Ranges whole({0, static_cast<std::int32_t>(s.T)}, s.T), documents(short_documents(s.T), s.T);
  const AttentionMask masks[] = {{}, whole.mask(), documents.mask()};
  double seconds[2][3] = {{1e30, 1e30, 1e30}, {1e30, 1e30, 1e30}};
  for (int repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t i = 0; i < 3; ++i) {
      const Options once = {.repeats = 1, .num_threads = options.num_threads};
      seconds[0][i] = std::min(seconds[0][i], least_seconds(once, [&] { passes.run_forward(masks[i]); }));
      seconds[1][i] = std::min(seconds[1][i], least_seconds(once, [&] { passes.run_backward(masks[i]); }));
    }
  const double share = static_cast<double>(masks[2].num_pairs) / static_cast<double>(masks[1].num_pairs);
  fmt::print("{}", row_of(s, dtype));
  for (const auto& of : seconds)
    fmt::print("   {:8.2f} ms causal, {:.3f} x as fast by ranges, a pair in documents {:.2f}", of[0] * 1e3,
               of[0] / of[1], of[2] / of[1] / share);
  const double all = seconds[0][1] + seconds[1][1], of_documents = seconds[0][2] + seconds[1][2];
  fmt::print("   both passes {:.3f}, {:.2f}\n", (seconds[0][0] + seconds[1][0]) / all, of_documents / all / share);
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
  const auto is_wanted = [&](const Shape& shape, DType dtype) {
    return row_of(shape, dtype).starts_with(options.rows);
  };
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const Shape& shape : {Shape{16, 256, 6, 6, 64},
                               {1, 1024, 12, 12, 64},
                               {4, 1024, 12, 12, 64},
                               {1, 2048, 12, 12, 64},
                               {1, 2048, 12, 4, 64},
                               {1, 2048, 6, 6, 128},
                               {1, 16384, 4, 2, 64},
                               {1, 16384, 1, 1, 64}})
      if (is_wanted(shape, dtype)) measure(shape, dtype, rates, options);
  fmt::print("\nthe same mask as ranges, and documents of T / 16 tokens on average\n");
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const Shape& shape :
         {Shape{1, 2048, 12, 4, 64}, {1, 16384, 4, 2, 64}, {1, 16384, 1, 1, 64}, {1, 65536, 1, 1, 64}})
      if (is_wanted(shape, dtype)) measure_ranges(shape, dtype, options);
}
#endif
