// Times the collectives of this machine's transports: between threads, up to more than its cores, and between the
// processes of a job.
#pragma once

#include "comm/launch/run_ranks.h"
#include "spec/machine/host_curves.h"

#include <functional>

namespace echelon {

struct CollectiveMeasurement {
  int num_rounds = 5;              // every size is timed once in each round; the median counts
  double sample_seconds = 500e-6;  // at least this long
  std::function<void(double fraction)> progress = {};
};

using CollectivesByKind = std::map<std::string, std::vector<CollectivePoint>>;

/// By operation. A "send" is a transfer between neighbours (rank 0 to 1, 2 to 3, ...), all at the same time. A barrier
/// counts as one byte.
[[nodiscard]] CollectivesByKind measure_thread_collectives(const CollectiveMeasurement& options);

/// The same for processes: all of them, and groups of 2, 4, 8 ... at the same time. Called by all ranks; rank 0 gets
/// the result.
[[nodiscard]] CollectivesByKind measure_process_collectives(const RankPlacement& placement,
                                                            const CollectiveMeasurement& options);

}  // namespace echelon
