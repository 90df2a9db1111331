// What the cores or the GPUs of this host can do, for the floors of a traced run and for mfu.
#pragma once

#include "backend/backend.h"
#include "comm/launch/run_ranks.h"
#include "spec/config/run_config.h"
#include "spec/machine/host_spec.h"

#include <optional>

namespace echelon {

/// The rates of all cores of a host, or of the GPUs of its ranks, and the parts of it that matter to a run.
struct HostRates {
  ComputeRates all_cores;
  double rank_share = 1;  // on which this rank computes
  double num_hosts = 1;   // on which the run computes
};

/// From the file metrics.machine, or of cores measured for a trace. Ranks that are threads share a measurement of all
/// cores, made before they start; processes measure at the same time, each on the threads of its rank.
class RatesOfHost {
 public:
  /// Throws Error if the file cannot be read, or if a trace of GPUs has none.
  RatesOfHost(const MetricsConfig& metrics, const RankPlacement& placement, DeviceKind device);

  /// Called by every rank once its cores are its own. None: they are neither known nor wanted.
  [[nodiscard]] std::optional<HostRates> of_rank(int num_threads) const;

 private:
  RankPlacement placement_;
  DeviceKind device_;
  bool is_wanted_;
  std::optional<ComputeRates> all_cores_;
};

}  // namespace echelon
