// How much memory an input takes: every allocation of the whole program is counted, by operator new (counted_new.cpp)
// or by the sanitizer's hooks (libfuzzer/counted_by_sanitizer.cpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace echelon::fuzz {

/// Bytes of the heap. `most` is the largest that `held` was since it was set.
struct HeapCount {
  std::atomic<std::size_t> held = 0, most = 0;

  void add(std::size_t num_bytes) {
    const std::size_t now = held += num_bytes;
    for (std::size_t before = most; before < now && !most.compare_exchange_weak(before, now);) continue;
  }
  void remove(std::size_t num_bytes) { held -= num_bytes; }
};

/// Counts from the first call at the latest.
[[nodiscard]] HeapCount& heap_count();

/// Ends the program, with a sentence, if between its two ends the heap grows by more than 64 MiB and 20 times the
/// input.
class HeapBound {
 public:
  explicit HeapBound(std::size_t input_bytes)
      : bound_((std::size_t{64} << 20U) + 20 * input_bytes), at_start_(heap_count().held) {
    heap_count().most = at_start_;
  }
  ~HeapBound() {
    if (most_bytes() <= bound_) return;
    std::fprintf(stderr, "the heap grew by %zu bytes, and only %zu are allowed\n", most_bytes(), bound_);
    std::abort();
  }
  HeapBound(const HeapBound&) = delete;
  HeapBound& operator=(const HeapBound&) = delete;

  /// By how much the heap has grown at most so far.
  [[nodiscard]] std::size_t most_bytes() const {
    const std::size_t most = heap_count().most;
    return most - std::min(most, at_start_);
  }

 private:
  std::size_t bound_, at_start_;
};

}  // namespace echelon::fuzz
