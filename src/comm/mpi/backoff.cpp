#include "comm/mpi/backoff.h"

#include <algorithm>
#include <thread>

namespace echelon {

bool Backoff::pause() {
  ++num_pauses_;
  if (num_pauses_ <= most_spins_) return false;  // a poll takes long enough
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep);
  return true;
}

}  // namespace echelon
