// The cost of an action, and what it takes on the mesh of a layout.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/machine/device_map.h"
#include "predict/machine/host_time.h"
#include "predict/step/context_rank.h"
#include "predict/step/cost_events.h"
#include "spec/machine/machine_spec.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace echelon {

/// The events of a trace, whose kernels a host issues in `launch_seconds` each.
template <class SecondsOfOperation>
[[nodiscard]] CostEvents cost_events(const CallTrace& trace, SecondsOfOperation&& seconds_of,
                                     double launch_seconds = 0);

/// On a host the seconds are those with all its cores, communication included.
struct ActionCost {
  CostEvents events = {};   // on the fastest kind of device
  double core_seconds = 0;  // on a host: of all cores together, for one rank

  [[nodiscard]] double compute_seconds() const { return events.compute_seconds(); }
};

/// Costs that are the least on any device that a rank may be placed on. Memoised; not thread-safe.
class CostTimer {
 public:
  CostTimer(const MachineSpec& machine, std::int64_t num_ranks);
  CostTimer(const CostTimer&) = delete;
  CostTimer& operator=(const CostTimer&) = delete;

  [[nodiscard]] ActionCost cost_of(const CallTrace& trace);
  /// On the mesh of a layout; the fastest kind of node bounds what any rank does.
  [[nodiscard]] double seconds(const ActionCost& cost, const MeshShape& mesh);
  /// The same of several, which lowers those of `least` that are above.
  void take_least(std::span<const ActionCost> costs, const MeshShape& mesh, std::span<double> least);

 private:
  [[nodiscard]] ActionCost cost_on_host(const CallTrace& trace);

  /// A mesh on one of `machines_`, and where groups of rank 0 are placed: a search asks for few meshes again and again.
  struct PlacedMesh {
    DeviceMap devices;
    bool is_regular = false;
    std::map<std::tuple<Group, CommKind, int>, GroupPlacement> placements = {};  // kind and peer: of transfers
  };
  using MeshKey = std::array<int, 2 * num_axes>;  // degrees and strides
  [[nodiscard]] std::vector<PlacedMesh>& placed(const MeshShape& mesh);
  [[nodiscard]] static double least_seconds(const CommRecord& record, PlacedMesh& mesh);

  std::vector<MachineSpec> machines_;  // the machine as if all nodes were of one kind, for each kind
  std::optional<HostTime> host_;
  std::map<MeshKey, std::vector<PlacedMesh>> meshes_;  // by machine
};

template <class SecondsOfOperation>
CostEvents cost_events(const CallTrace& trace, SecondsOfOperation&& seconds_of, double launch_seconds) {
  constexpr std::size_t of_one_rank = static_cast<std::size_t>(-1);
  CostEvents events;
  std::vector<std::size_t> starts;  // by number in the trace: its number in the list
  std::size_t num_starts = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (const auto* operation = std::get_if<OpRecord>(&event)) {
      const double seconds = seconds_of(*operation);
      events.compute(seconds, issue_of_kernels(operation->num_kernels, launch_seconds, seconds));
    } else if (std::holds_alternative<CommRecord>(event)) {
      const auto& [started, num_records] = posted_at(trace.events, i);
      starts.insert(starts.end(), num_records, started.group_size > 1 ? num_starts++ : of_one_rank);
      if (started.group_size > 1) events.start(started);
      i += num_records - 1;
    } else if (const std::size_t start = starts[std::get<CommWait>(event).start]; start != of_one_rank) {
      events.wait(start);
    }
  }
  events.shrink_to_fit();
  return events;
}

}  // namespace echelon
