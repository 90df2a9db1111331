// How a process waits for others: it polls often at first, then sleeps with an increasing time (backoff). It never
// yields: on a shared core, Linux runs all other processes before one that yields, but resumes one that sleeps when its
// time is over.
#pragma once

#include <chrono>

namespace echelon {

class Backoff {
 public:
  explicit Backoff(bool has_own_core) : most_spins_(has_own_core ? 4000 : 20) {}

  /// There was progress.
  void reset() {
    num_pauses_ = 0;
    sleep_ = first_sleep;
  }
  /// There was no progress: spins or sleeps. True if it slept, so that the caller checks the time.
  bool pause();

 private:
  static constexpr std::chrono::microseconds first_sleep{20}, longest_sleep{500};
  int most_spins_;
  int num_pauses_ = 0;
  std::chrono::microseconds sleep_ = first_sleep;
};

}  // namespace echelon
