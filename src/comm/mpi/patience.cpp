#include "comm/mpi/patience.h"

#include <algorithm>
#include <thread>

namespace echelon {

bool Patience::rest() {
  ++num_rests_;
  if (num_rests_ <= most_spins_) return false;  // a look at what has come takes long enough
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep);
  return true;
}

}  // namespace echelon
