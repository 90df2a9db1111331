#include "predict/deed_timer.h"

#include "predict/device_time.h"
#include "predict/least_communication.h"

#include <algorithm>
#include <limits>

namespace echelon {
namespace {

double seconds_on(const MachineSpec& machine, const std::vector<CommRecord>& comms, const MeshShape& mesh) {
  const DeviceMap devices(mesh, machine);
  double seconds = 0;
  for (const CommRecord& record : comms) seconds += least_communication_seconds(record, 0, devices);
  return seconds;
}

}  // namespace

DeedTimer::DeedTimer(const MachineSpec& machine, std::int64_t num_ranks) {
  if (machine.host) host_.emplace(*machine.host, static_cast<int>(num_ranks));
  for (const NodeSpec& kind : machine.nodes) {
    machines_.push_back(machine);
    machines_.back().nodes = {kind};
    machines_.back().nodes.front().count = 0;
  }
}

Deed DeedTimer::deed_of(const CallTrace& call) {
  if (host_) return deed_on_host(call);
  Deed deed;
  deed.compute_seconds = std::numeric_limits<double>::max();
  for (const MachineSpec& machine : machines_) {
    double seconds = 0;
    for (const OpRecord& operation : call.ops) seconds += operation_seconds(operation, machine.nodes.front().device);
    deed.compute_seconds = std::min(deed.compute_seconds, seconds);
  }
  std::copy_if(call.comms.begin(), call.comms.end(), std::back_inserter(deed.comms),
               [](const CommRecord& record) { return record.group_size > 1; });
  return deed;
}

// With c of C cores an operation takes between `busy` (c = 1) and `shared` (c = C) seconds (predict/host_step.cpp), and
// c times that of all cores together, which is monotonic in c as well: the least of both is at an end. Who waits for an
// exchange works on it, all cores at most.
Deed DeedTimer::deed_on_host(const CallTrace& call) {
  const auto num_cores = static_cast<double>(host_->host().num_cores);
  Deed deed;
  for (const OpRecord& operation : call.ops) {
    const CoreSeconds cost = host_->of(operation);
    deed.compute_seconds += std::min(cost.busy, cost.shared);
    deed.core_seconds += std::min(cost.busy, num_cores * cost.shared);
  }
  for (const CommRecord& record : call.comms) {
    if (record.group_size < 2) continue;
    const int num_parties = record.kind == CommKind::send || record.kind == CommKind::receive ? 2 : record.group_size;
    const double work = host_->of(record, num_parties);
    deed.compute_seconds += work / num_cores;
    deed.core_seconds += work / num_parties;
  }
  return deed;
}

double DeedTimer::seconds(const Deed& deed, const MeshShape& mesh) const {
  if (host_) return deed.compute_seconds;
  double least = std::numeric_limits<double>::max();
  for (const MachineSpec& machine : machines_) least = std::min(least, seconds_on(machine, deed.comms, mesh));
  return deed.compute_seconds + least;
}

}  // namespace echelon
