#include "measure/host_rates.h"

#include "machine/cpus.h"
#include "measure/measure_machine.h"
#include "spec/machine/machine_spec.h"

#include <algorithm>

namespace echelon {

namespace {

ComputeRates rates_of(const DeviceSpec& device) {
  const auto peak = [&](std::string_view format) {
    const auto found = device.formats.find(format);
    return found == device.formats.end() ? 0.0 : found->second.peak_flops;
  };
  return {.float32_flops = peak("float32"),
          .float64_flops = peak("float64"),
          .bfloat16_flops = peak("bfloat16"),
          .sgemm_flops = peak("float32"),
          .copy_bandwidth = device.memory_bandwidth,
          .triad_bandwidth = device.memory_bandwidth,
          .read_bandwidth = device.memory_bandwidth};
}

}  // namespace

RatesOfHost::RatesOfHost(const MetricsConfig& metrics, const RankPlacement& placement, DeviceKind device)
    : placement_(placement), device_(device), is_wanted_(!metrics.machine.empty() || !metrics.trace.empty()) {
  require(device == DeviceKind::cpu || metrics.trace.empty() || !metrics.machine.empty(),
          "metrics.trace = '{}' on GPUs compares operations with the peaks of the GPU, but metrics.machine is empty "
          "(example: h100)",
          metrics.trace);
  if (device == DeviceKind::cuda && is_wanted_)
    all_cores_ = rates_of(read_machine(metrics.machine).nodes.front().device) * placement.num_ranks_on_host;
  else if (!metrics.machine.empty())
    all_cores_ = read_host(metrics.machine).device;
  else if (is_wanted_ && placement.transport == Transport::thread)
    all_cores_ = measure_rates(num_usable_cores());
}

std::optional<HostRates> RatesOfHost::of_rank(int num_threads) const {
  if (!is_wanted_) return std::nullopt;
  const double num_hosts = static_cast<double>(placement_.num_ranks) / placement_.num_ranks_on_host;
  const double process_share = 1.0 / placement_.num_ranks_on_host;
  if (!all_cores_) return HostRates{measure_rates(num_threads) * (1 / process_share), process_share, num_hosts};
  if (device_ == DeviceKind::cuda || placement_.transport == Transport::mpi)
    return HostRates{*all_cores_, process_share, num_hosts};
  return HostRates{*all_cores_, std::min(1.0, static_cast<double>(num_threads) / num_usable_cores()), num_hosts};
}

}  // namespace echelon
