// The peak of multiply-adds, and the frequency of the core that reached it: many processors lower theirs while they
// multiply by their widest instructions, most where operands come from memory.
#pragma once

#include "base/clock.h"
#include "ops/cpu/peaks.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace echelon::bench {

/// How many integer multiplications this thread does in a second, each of which waits for the one before: a multiple of
/// its core's frequency. Within a microsecond, since 2.5 after its last product a Granite Rapids is faster again.
inline double chained_multiplications_per_second() {
  constexpr int count = 900;
  static std::atomic<std::uint64_t> sink = 3;
  std::uint64_t x = sink;
  const double start = now_seconds();
  for (int i = 0; i < count; ++i) x *= x;
  sink = x;
  return count / (now_seconds() - start);
}

struct Peak {
  double flops = 0, frequency = 0;
};

/// On this thread alone, whose frequency is asked right after.
inline Peak measure_peak() {
  Peak peak;
  for (int attempt = 0; attempt < 5; ++attempt) {
    peak.flops = std::max(peak.flops, measure_multiply_adds(DType::float32, {}));
    peak.frequency = std::max(peak.frequency, chained_multiplications_per_second());
  }
  return peak;
}

}  // namespace echelon::bench
