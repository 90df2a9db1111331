// Clocks for measurements: a monotonic one that all threads and processes of a host share, and one for the CPU time of
// each thread.
#pragma once

#include <chrono>
#include <ctime>

namespace echelon {

/// Seconds since a fixed moment before the program started.
[[nodiscard]] inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU seconds of the calling thread. Time of other threads on the same core is not counted.
[[nodiscard]] inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace echelon
