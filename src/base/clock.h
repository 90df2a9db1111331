// The clock of measurements: monotonic, and the same for all threads and processes of a host.
#pragma once

#include <chrono>

namespace echelon {

/// Seconds since some moment before the program began.
[[nodiscard]] inline double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace echelon
