#include "ops/cpu/peaks.h"

#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/peaks.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Twelve independent sums are enough to hide their latency, and with two factors they stay within AVX2's 16 registers.
/// Their starts differ, so that none of them is computed once for all. Returns the flops done; adds to `sink`, so that
/// nothing is optimised away.
template <class T>
double multiply_adds(std::int64_t repeats, T* sink) {
  const hn::ScalableTag<T> d;
  const auto x = hn::Set(d, *sink), y = hn::Set(d, static_cast<T>(1e-3));
  const auto start = [&](int i) HWY_ATTR { return hn::Set(d, *sink * static_cast<T>(i)); };
  auto a = start(0), b = start(1), c = start(2), e = start(3), f = start(4), g = start(5);
  auto h = start(6), i = start(7), j = start(8), k = start(9), l = start(10), m = start(11);
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    a = hn::MulAdd(x, y, a), b = hn::MulAdd(x, y, b), c = hn::MulAdd(x, y, c), e = hn::MulAdd(x, y, e);
    f = hn::MulAdd(x, y, f), g = hn::MulAdd(x, y, g), h = hn::MulAdd(x, y, h), i = hn::MulAdd(x, y, i);
    j = hn::MulAdd(x, y, j), k = hn::MulAdd(x, y, k), l = hn::MulAdd(x, y, l), m = hn::MulAdd(x, y, m);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)),
                           hn::Add(hn::Add(f, g), hn::Add(hn::Add(h, i), hn::Add(hn::Add(j, k), hn::Add(l, m)))));
  *sink += hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * 12.0 * static_cast<double>(repeats) * static_cast<double>(hn::Lanes(d));
}
double MultiplyAdds32(std::int64_t repeats, float* sink) { return multiply_adds<float>(repeats, sink); }
double MultiplyAdds64(std::int64_t repeats, double* sink) { return multiply_adds<double>(repeats, sink); }

/// The range [0, count) of floats; count is a multiple of 256.
void Copy(const float* HWY_RESTRICT x, float* HWY_RESTRICT y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) hn::Stream(hn::Load(d, x + i), d, y + i);
  hwy::FlushStream();
}
void Triad(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, float* HWY_RESTRICT z, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, 0.5F);
  for (std::int64_t i = 0; i < count; i += lanes)
    hn::Stream(hn::MulAdd(factor, hn::Load(d, y + i), hn::Load(d, x + i)), d, z + i);
  hwy::FlushStream();
}
float Read(const float* HWY_RESTRICT x, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i < count; i += 4 * lanes) {
    a = hn::Add(a, hn::Load(d, x + i)), b = hn::Add(b, hn::Load(d, x + i + lanes));
    c = hn::Add(c, hn::Load(d, x + i + 2 * lanes)), e = hn::Add(e, hn::Load(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/clock.h"
#include "base/median.h"
#include "ops/cpu/bfloat16_peak.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/instruction_set.h"

#include <algorithm>
#include <barrier>
#include <thread>
#include <utility>
#include <vector>

namespace echelon {
namespace {

HWY_EXPORT(MultiplyAdds32);
HWY_EXPORT(MultiplyAdds64);
HWY_EXPORT(Copy);
HWY_EXPORT(Triad);
HWY_EXPORT(Read);

/// The best rate of all threads together over rounds that each of them starts at the same time; work(thread) returns
/// what it did.
template <class F>
double best_rate(const PeakOptions& options, F&& work) {
  const auto num_threads = static_cast<std::size_t>(options.num_threads);
  std::vector<double> done(num_threads), end(num_threads);
  std::barrier round(options.num_threads);
  double best = 0;
  bool is_over = false;  // written by thread 0 between two barriers
  const auto measure = [&](std::size_t thread) {
    if (options.starts) options.starts(static_cast<int>(thread));
    for (const double first = now_seconds(); !is_over;) {
      round.arrive_and_wait();
      const double start = now_seconds();
      done[thread] = work(static_cast<int>(thread));
      end[thread] = now_seconds();
      round.arrive_and_wait();
      if (thread == 0) {
        double all = 0;
        for (const double each : done) all += each;
        best = std::max(best, all / (*std::max_element(end.begin(), end.end()) - start));
        is_over = end[0] - first > options.seconds;
      }
      round.arrive_and_wait();
    }
  };
  // The caller only waits, so that no binding of a thread remains.
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < num_threads; ++thread) threads.emplace_back(measure, thread);
  for (std::thread& thread : threads) thread.join();
  return best;
}

constexpr std::int64_t num_repeats = 100'000;     // some tenths of a millisecond
constexpr std::int64_t buffer_floats = 16 << 20;  // 64 MiB each

template <class T, class Kernel>
double rate_of(const PeakOptions& options, Kernel&& kernel) {
  return best_rate(options, [&](int) {
    T sink = static_cast<T>(0.1);
    return kernel(num_repeats, &sink);
  });
}

}  // namespace

double measure_multiply_adds(DType dtype, const PeakOptions& options) {
  static_cast<void>(instruction_set_cap());
  switch (dtype) {
    case DType::float32:
      return rate_of<float>(options, [](std::int64_t repeats, float* sink) {
        return HWY_DYNAMIC_DISPATCH(MultiplyAdds32)(repeats, sink);
      });
    case DType::float64:
      return rate_of<double>(options, [](std::int64_t repeats, double* sink) {
        return HWY_DYNAMIC_DISPATCH(MultiplyAdds64)(repeats, sink);
      });
    case DType::bfloat16:
      if (amx_kernels() != nullptr) return rate_of<float>(options, bfloat16_tiles);
      return bfloat16_kernels() != nullptr ? rate_of<float>(options, bfloat16_dot_products) : 0;
    case DType::float16:
    case DType::int32:
    case DType::int16: break;
  }
  return 0;
}

double measure_cycles_of_short_loop(double seconds) {
  constexpr std::int64_t num_cycles = 64 * 512, num_in_row = 64;  // some ten microseconds
  std::vector<double> cycles;
  for (const double first = now_seconds(); cycles.empty() || now_seconds() - first < seconds;) {
    const double start = now_seconds();
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < num_cycles; i += num_in_row) {
      HWY_UNROLL(64)
      for (std::int64_t added = 0; added < num_in_row; ++added) {
        sum += i;
        asm volatile("" : "+r"(sum));  // an addition takes a cycle, after the one before
      }
    }
    const double between = now_seconds();
    for (std::int64_t left = num_cycles; left > 0; --left) asm volatile("" : "+r"(left));
    const double end = now_seconds();
    cycles.push_back((end - between) / (between - start));
  }
  return median(std::move(cycles));
}

BandwidthMeter::BandwidthMeter() : arena_(std::make_unique<Arena>(3 * buffer_floats * std::int64_t{sizeof(float)})) {
  const Tensor all = arena_->tensor(0, DType::float32, {3, buffer_floats});
  x_ = all.rows(0, 1).as<float>();
  y_ = all.rows(1, 1).as<float>();
  z_ = all.rows(2, 1).as<float>();
  // Pages of their own: the system's page of zeros would be read out of the cache.
  std::fill(x_, x_ + 3 * buffer_floats, 1.0F);
}

double BandwidthMeter::measure(MemoryPattern pattern, const PeakOptions& options) {
  const std::int64_t share = buffer_floats / options.num_threads / 256 * 256;
  return best_rate(options, [&](int thread) {
    const std::int64_t first = thread * share;
    switch (pattern) {
      case MemoryPattern::copy:
        HWY_DYNAMIC_DISPATCH(Copy)(x_ + first, y_ + first, share);
        return 2.0 * sizeof(float) * static_cast<double>(share);
      case MemoryPattern::triad:
        HWY_DYNAMIC_DISPATCH(Triad)(x_ + first, y_ + first, z_ + first, share);
        return 3.0 * sizeof(float) * static_cast<double>(share);
      case MemoryPattern::read: {
        const volatile float sum = HWY_DYNAMIC_DISPATCH(Read)(x_ + first, share);
        static_cast<void>(sum);
        return 1.0 * sizeof(float) * static_cast<double>(share);
      }
    }
    return 0.0;
  });
}

}  // namespace echelon
#endif
