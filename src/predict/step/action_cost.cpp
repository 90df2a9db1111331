#include "predict/step/action_cost.h"

#include "predict/machine/device_time.h"
#include "predict/machine/least_communication.h"
#include "predict/machine/network_time.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace echelon {
namespace {

/// Of the last few operations that differ: the hops of a ring compute the same again and again.
class KnownSeconds {
 public:
  [[nodiscard]] double of(const OpRecord& operation, const DeviceSpec& device) {
    const auto found = std::ranges::find(known_, operation, &Known::operation);
    if (found != known_.end()) return found->seconds;
    Known& oldest = known_[next_++ % known_.size()];
    oldest = {operation, operation_seconds(operation, device)};
    return oldest.seconds;
  }

 private:
  struct Known {
    OpRecord operation = {.m = -1};  // none is like it
    double seconds = 0;
  };
  std::array<Known, 8> known_ = {};
  std::size_t next_ = 0;
};

}  // namespace

CostTimer::CostTimer(const MachineSpec& machine, std::int64_t num_ranks) {
  if (machine.host) host_.emplace(*machine.host, static_cast<int>(num_ranks));
  for (const NodeSpec& kind : machine.nodes) {
    machines_.push_back(machine);
    machines_.back().nodes = {kind};
    machines_.back().nodes.front().count = 0;
  }
}

ActionCost CostTimer::cost_of(const CallTrace& trace) {
  if (host_) return cost_on_host(trace);
  ActionCost least;
  double least_seconds = std::numeric_limits<double>::max();
  for (const MachineSpec& machine : machines_) {
    KnownSeconds known;
    const DeviceSpec& device = machine.nodes.front().device;
    ActionCost cost = {
        .events = cost_events(
            trace, [&](const OpRecord& operation) { return known.of(operation, device); }, device.launch_seconds)};
    if (const double seconds = cost.compute_seconds(); seconds < least_seconds) {
      least_seconds = seconds;
      least = std::move(cost);
    }
  }
  return least;
}

// With c of C cores an operation takes between `busy` (c = 1) and `shared` (c = C) seconds
// (predict/host/host_step.cpp), and c times that of all cores together. That is monotonic in c as well, so the least of
// both is at an end. A rank that waits for an exchange works on it, all cores at most.
ActionCost CostTimer::cost_on_host(const CallTrace& trace) {
  const auto num_cores = static_cast<double>(host_->host().num_cores);
  double seconds = 0;
  ActionCost cost;
  for (const OpRecord& operation : trace.operations()) {
    const CoreSeconds of = host_->of(operation);
    seconds += std::min(of.busy, of.shared);
    cost.core_seconds += std::min(of.busy, num_cores * of.shared);
  }
  for (const CommRecord& record : trace.communications()) {
    if (record.group_size < 2) continue;
    const int num_parties = record.kind == CommKind::send || record.kind == CommKind::receive ? 2 : record.group_size;
    const double work = host_->of(record, num_parties);
    seconds += work / num_cores;
    cost.core_seconds += work / num_parties;
  }
  cost.events.compute(seconds);
  return cost;
}

double CostTimer::seconds(const ActionCost& cost, const MeshShape& mesh) {
  double seconds = std::numeric_limits<double>::max();
  take_least(std::span(&cost, 1), mesh, std::span(&seconds, 1));
  return seconds;
}

void CostTimer::take_least(std::span<const ActionCost> costs, const MeshShape& mesh, std::span<double> least) {
  if (host_)
    for (std::size_t i = 0; i < costs.size(); ++i) least[i] = std::min(least[i], costs[i].compute_seconds());
  else
    for (PlacedMesh& each : placed(mesh)) {
      std::vector<std::pair<const CommRecord*, double>> known;  // a few
      for (std::size_t i = 0; i < costs.size(); ++i) {
        const std::vector<CommRecord>& records = costs[i].events.records();
        std::vector<double> of_records;
        for (const CommRecord& record : records) {
          auto same = std::ranges::find_if(known, [&](const auto& other) { return *other.first == record; });
          if (same == known.end()) same = known.insert(same, {&record, least_seconds(record, each)});
          of_records.push_back(same->second);
        }
        const double seconds = costs[i].events.seconds(
            [&](const CommRecord& record) { return of_records[static_cast<std::size_t>(&record - records.data())]; });
        least[i] = std::min(least[i], seconds);
      }
    }
}

std::vector<CostTimer::PlacedMesh>& CostTimer::placed(const MeshShape& mesh) {
  constexpr std::size_t most_known = 4096;
  MeshKey key;
  for (std::size_t i = 0; i < num_axes; ++i) {
    key[2 * i] = mesh.degree(static_cast<Axis>(i));
    key[2 * i + 1] = mesh.stride(static_cast<Axis>(i));
  }
  if (meshes_.size() == most_known && !meshes_.contains(key)) meshes_.clear();
  const auto [known, is_new] = meshes_.try_emplace(key);
  if (is_new)
    for (const MachineSpec& machine : machines_) {
      const DeviceMap devices(mesh, machine);
      known->second.push_back({devices, devices.is_regular()});
    }
  return known->second;
}

double CostTimer::least_seconds(const CommRecord& record, PlacedMesh& mesh) {
  if (!mesh.is_regular) return least_communication_seconds(record, 0, mesh.devices);
  const bool is_transfer = record.kind == CommKind::send || record.kind == CommKind::receive;
  const auto [known, is_new] = mesh.placements.try_emplace(
      {record.group, is_transfer ? record.kind : CommKind::barrier, is_transfer ? record.peer : -1});
  if (is_new) known->second = placement_of(record, 0, mesh.devices);
  return communication_seconds(record, known->second, mesh.devices.machine().network);
}

}  // namespace echelon
