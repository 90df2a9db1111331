// Rates of the cores or GPUs of this host, for the lower bounds of a traced run and for MFU.
#pragma once

#include "backend/backend.h"
#include "comm/launch/run_ranks.h"
#include "spec/config/run_config.h"
#include "spec/machine/host_spec.h"

#include <optional>

namespace echelon {

/// The rates of all cores of a host, or of the GPUs of its ranks, and the shares of a rank and of a run.
struct HostRates {
  ComputeRates all_cores;
  double rank_share = 1;  // cores or GPUs of this rank
  double num_hosts = 1;   // cores or GPUs of the run
};

/// Read from the file metrics.machine, or measured on the cores for a trace. Thread ranks share one measurement of all
/// cores, made before they start. Processes measure at the same time, each on the threads of its rank.
class RatesOfHost {
 public:
  /// Throws Error if the file cannot be read, or if a GPU trace has no file.
  RatesOfHost(const MetricsConfig& metrics, const RankPlacement& placement, DeviceKind device);

  /// Called by every rank after its cores are bound. None if the rates are neither known nor needed.
  [[nodiscard]] std::optional<HostRates> of_rank(int num_threads) const;

 private:
  RankPlacement placement_;
  DeviceKind device_;
  bool is_wanted_;
  std::optional<ComputeRates> all_cores_;
};

}  // namespace echelon
