// Measures the peak rates of this machine's cores: multiply-adds of operands in registers, and bytes moved from and to
// memory. A multiply-add is two flops. Every figure is the best of several runs, since others may use the machine too.
#pragma once

#include "tensor/arena.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace echelon {

struct PeakOptions {
  int num_threads = 1;                          // at the same time; the rate is that of all together
  double seconds = 0.05;                        // of measuring
  std::function<void(int thread)> starts = {};  // called by each thread before it measures, e.g. to bind it
};

/// Flops per second for float32, float64, or bfloat16 by the dot product that sums in float32; 0 where the processor
/// has no such instruction.
[[nodiscard]] double measure_multiply_adds(DType dtype, const PeakOptions& options);

/// How many cycles this thread takes for an iteration of a loop that does nothing: 1, or 2 and more where another
/// thread uses the same core, maybe one of another virtual machine. The core then fetches instructions for each in
/// turn, which multiply-adds in registers hardly notice, but matmuls do. The median over `seconds`.
[[nodiscard]] double measure_cycles_of_short_loop(double seconds);

enum class MemoryPattern : std::uint8_t {
  copy,   // y = x, written past the caches
  triad,  // z = x + a y, likewise
  read,   // a sum
};

/// Bytes read and written per second, over buffers far larger than the caches.
class BandwidthMeter {
 public:
  BandwidthMeter();

  [[nodiscard]] double measure(MemoryPattern pattern, const PeakOptions& options);

 private:
  std::unique_ptr<Arena> arena_;
  float *x_ = nullptr, *y_ = nullptr, *z_ = nullptr;
};

}  // namespace echelon
