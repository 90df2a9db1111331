// The shortest time of a call.
#pragma once

#include "base/clock.h"

#include <algorithm>
#include <limits>

namespace echelon {

/// Seconds of the fastest call of f, of as many calls as fit into `seconds`, at least one.
template <class F>
double fastest(double seconds, F&& f) {
  double best = std::numeric_limits<double>::infinity();
  const double first = now_seconds();
  for (bool has_time = true; has_time; has_time = now_seconds() - first < seconds) {
    const double start = now_seconds();
    f();
    best = std::min(best, now_seconds() - start);
  }
  return best;
}

}  // namespace echelon
