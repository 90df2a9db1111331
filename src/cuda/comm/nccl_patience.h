// How the host waits for NCCL, which says only when it is asked whether it is done.
#pragma once

#include <chrono>
#include <thread>

namespace echelon::cuda {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The thread of NCCL's that is waited for may need this very core.
inline void rest(int num_looks) {
  constexpr int patience = 200;
  if (num_looks > patience) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace echelon::cuda
