// One operation on many sets of operands, one set after the other.
#pragma once

#include "base/clock.h"
#include "ops/sample.h"
#include "tensor/arena.h"

#include <algorithm>

namespace echelon {

[[nodiscard]] inline std::int64_t operand_bytes(const OperationSize& size) {
  Stack measure;
  (void)sample_operation(size, measure);
  return measure.peak_bytes();
}

class RepeatedSamples {
 public:
  /// On as many sets as `spread_bytes` of the pool hold, but at least one and at most 2^16.
  RepeatedSamples(const OperationSize& size, const Arena& pool, std::int64_t spread_bytes) {
    const std::int64_t bytes = operand_bytes(size),
                       sets = std::clamp<std::int64_t>(spread_bytes / std::max<std::int64_t>(bytes, 1), 1, 1 << 16);
    for (std::int64_t set = 0; set < sets; ++set) {
      Stack memory = pool.region(set * bytes, bytes);
      samples_.push_back(sample_operation(size, memory));
    }
    count_ = sets;
  }

  [[nodiscard]] std::int64_t num_sets() const { return std::ssize(samples_); }
  /// From now on only these, from the first of them on.
  void use(std::int64_t first, std::int64_t count) {
    first_ = std::min(first, num_sets() - 1);
    count_ = std::clamp<std::int64_t>(count, 1, num_sets() - first_);
    next_ = 0;
  }

  /// Seconds per call.
  double time(Ops& ops, std::int64_t calls) {
    const double start = now_seconds();
    for (std::int64_t call = 0; call < calls; ++call) {
      samples_[static_cast<std::size_t>(first_ + next_)].run(ops);
      next_ = (next_ + 1) % count_;
    }
    return (now_seconds() - start) / static_cast<double>(calls);
  }

 private:
  std::vector<Sample> samples_;
  std::int64_t first_ = 0, count_ = 1, next_ = 0;
};

}  // namespace echelon
