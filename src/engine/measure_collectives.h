// Times the collectives of thread ranks on this machine: of as many ranks as there are cores, and of more.
#pragma once

#include "spec/host_curves.h"

#include <functional>

namespace echelon {

struct CollectiveMeasurement {
  int num_rounds = 5;              // every size is timed once in each; the median counts
  double sample_seconds = 500e-6;  // at least so long
  std::function<void(double fraction)> progress = {};
};

/// By operation. A "send" is one between neighbours (rank 0 to 1, 2 to 3, ...), all at the same time; a barrier counts as one byte.
[[nodiscard]] std::map<std::string, std::vector<CollectivePoint>> measure_thread_collectives(const CollectiveMeasurement& options);

}  // namespace echelon
