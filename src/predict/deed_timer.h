// What calls take at least, on any device that their rank may lie on.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/host_time.h"
#include "spec/machine_spec.h"

#include <optional>
#include <vector>

namespace echelon {

/// What an action computes and what it sends. On a host the seconds are those with all its cores, exchanges included.
struct Deed {
  double compute_seconds = 0;          // on the fastest kind of device
  std::vector<CommRecord> comms = {};  // in groups of more than one rank
  double core_seconds = 0;             // on a host: what all cores together spend on it, for one rank
};

class DeedTimer {
 public:
  /// It refers to the machine.
  DeedTimer(const MachineSpec& machine, std::int64_t num_ranks);

  [[nodiscard]] Deed deed_of(const CallTrace& call);
  /// On the mesh of a layout; the fastest kind of node bounds what any rank does.
  [[nodiscard]] double seconds(const Deed& deed, const MeshShape& mesh) const;

 private:
  [[nodiscard]] Deed deed_on_host(const CallTrace& call);

  std::vector<MachineSpec> machines_;  // the machine as if all nodes were of one kind, for each kind
  std::optional<HostTime> host_;
};

}  // namespace echelon
