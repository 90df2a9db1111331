// As many permits to compute as there are cores. A rank holds one while it computes and gives it back before it waits for a peer, so any number of ranks
// runs without thrashing, and a BLAS library never meets more callers than cores.
#pragma once

#include "comm/thread/futex.h"

namespace echelon {

class Permits {
 public:
  /// With no more ranks than permits there is nothing to hand out, and acquire and release cost nothing.
  Permits(int num_permits, int num_ranks) : is_scarce_(num_ranks > num_permits), free_(static_cast<std::uint32_t>(num_permits)) {}

  void acquire();
  void release();
  /// Lets a rank compute that waits for a permit, if there is one.
  void yield();
  [[nodiscard]] bool is_scarce() const { return is_scarce_; }

 private:
  const bool is_scarce_;
  alignas(64) FutexWord free_;
  alignas(64) std::atomic<int> waiting_ = 0;
};

}  // namespace echelon
