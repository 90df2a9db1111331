// This host as a machine: ranks are any number of threads that share its cores and its memory.
#include "spec/machine/machine_spec.h"

#include <algorithm>

namespace echelon {
namespace {

FormatRates rates_of_core(const HostSpec& host, const std::string& dtype) {
  FormatRates rates;
  rates.peak_flops = host.core.peak_flops(dtype).value_or(0);
  const auto products = host.operations.find("matmul");
  if (products == host.operations.end()) return rates;
  const auto curve = products->second.find(dtype);
  if (curve == products->second.end()) return rates;
  for (const OperationPoint& point : curve->second)
    rates.points.push_back({.m = point.m, .n = point.n, .k = point.k, .flops = point.amount / point.busy_seconds});
  return rates;
}

}  // namespace

MachineSpec machine_of(const HostSpec& host) {
  NodeSpec node;
  node.name = host.processor;
  node.num_devices = 4096;
  node.device.name = "a core of " + host.processor;
  node.device.memory_bytes = host.memory_bytes;
  node.device.memory_bandwidth =
      host.device.memory_bandwidth() / static_cast<double>(std::max<std::int64_t>(1, host.num_cores));
  for (const char* dtype : {"float32", "bfloat16", "float64"}) node.device.formats[dtype] = rates_of_core(host, dtype);
  node.link.kind = LinkKind::shared_memory;
  node.link.bandwidth = host.all_reduce_bandwidth;
  node.link.latency_seconds = host.all_reduce_latency_seconds;
  node.disk = host.disk;
  MachineSpec machine;
  machine.name = host.processor;
  machine.source = "echelon bench";
  machine.nodes = {node};
  machine.host = host;
  return machine;
}

}  // namespace echelon
