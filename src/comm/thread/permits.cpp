#include "comm/thread/permits.h"

#include <sched.h>

namespace echelon {

void Permits::acquire() {
  if (!is_scarce_) return;
  for (;;) {
    std::uint32_t free = free_.load();
    while (free > 0)
      if (free_.compare_exchange_weak(free, free - 1)) return;
    waiting_.fetch_add(1);
    futex_wait(free_, 0);
    waiting_.fetch_sub(1);
  }
}

void Permits::release() {
  if (!is_scarce_) return;
  free_.fetch_add(1);
  if (waiting_.load() > 0) futex_wake(free_, 1);
}

void Permits::yield() {
  if (!is_scarce_ || waiting_.load() == 0) return;
  release();
  sched_yield();
  acquire();
}

}  // namespace echelon
