// The clocks of measurements: one that is monotonic and the same for all threads and processes of a host, and one of
// each thread's own.
#pragma once

#include <chrono>
#include <ctime>

namespace echelon {

/// Seconds since some moment before the program began.
[[nodiscard]] inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of processor time of the calling thread, so that others on the same core count less.
[[nodiscard]] inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace echelon
