// How a process waits for others: it looks often at first, then sleeps, longer and longer. It never yields: on a core
// that many share, Linux lets one that yields wait for all the others, but one that sleeps comes back when its time is
// over.
#pragma once

#include <chrono>

namespace echelon {

class Patience {
 public:
  explicit Patience(bool has_own_core) : most_spins_(has_own_core ? 4000 : 20) {}

  /// Something happened.
  void reset() {
    num_rests_ = 0;
    sleep_ = first_sleep;
  }
  /// Nothing happened: a moment passes. True if it was long enough to look at the clock.
  bool rest();

 private:
  static constexpr std::chrono::microseconds first_sleep{20}, longest_sleep{500};
  int most_spins_;
  int num_rests_ = 0;
  std::chrono::microseconds sleep_ = first_sleep;
};

}  // namespace echelon
