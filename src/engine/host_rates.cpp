#include "engine/host_rates.h"

#include "engine/measure_machine.h"
#include "machine/cpus.h"

#include <algorithm>

namespace echelon {

RatesOfHost::RatesOfHost(const MetricsConfig& metrics, const RankPlacement& placement)
    : placement_(placement), is_wanted_(!metrics.machine.empty() || !metrics.trace.empty()) {
  if (!metrics.machine.empty())
    all_cores_ = read_host(metrics.machine).device;
  else if (is_wanted_ && placement.transport == Transport::thread)
    all_cores_ = measure_rates(num_usable_cores());
}

std::optional<HostRates> RatesOfHost::of_rank(int num_threads) const {
  if (!is_wanted_) return std::nullopt;
  const double num_hosts = static_cast<double>(placement_.num_ranks) / placement_.num_ranks_on_host;
  const double process_share = 1.0 / placement_.num_ranks_on_host;
  if (!all_cores_) return HostRates{measure_rates(num_threads) * (1 / process_share), process_share, num_hosts};
  if (placement_.transport == Transport::mpi) return HostRates{*all_cores_, process_share, num_hosts};
  return HostRates{*all_cores_, std::min(1.0, static_cast<double>(num_threads) / num_usable_cores()), num_hosts};
}

}  // namespace echelon
