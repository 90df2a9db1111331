// Advances the transfers of a process while its rank computes. MPI moves data only within calls, over TCP no more than
// the sockets hold, and a large message needs calls at both ends before it starts. Attention to a long sequence makes
// none for seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace echelon {

class Background {
 public:
  /// Calls `advance` in each period, on a thread of its own, until it is stopped.
  Background(std::chrono::microseconds period, std::function<void()> advance);
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Returns when `advance` is not called any more.
  void stop();

 private:
  std::atomic<bool> is_stopped_ = false;
  std::thread thread_;
};

}  // namespace echelon
