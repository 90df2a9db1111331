// Seconds of what a rank's trace communicates: where its group is placed, and how long that takes there
// (predict/machine/collective_time.h).
#pragma once

#include "comm/trace/trace_mesh.h"
#include "predict/machine/device_map.h"

namespace echelon {

/// As `rank` records it. A hop of a ring takes as long as on the slowest of the ring's links: every rank waits for what
/// has come over it, a hop or some later. So do ranks that exchange heads before a ring. The ranks of the other groups
/// of the same axes communicate at the same time and share the cards of their nodes.
[[nodiscard]] double communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices);

/// Where the record's group or pair is placed. A caller that asks often keeps it: it depends on the record's group and
/// peer, and on the rank.
[[nodiscard]] GroupPlacement placement_of(const CommRecord& record, int rank, const DeviceMap& devices);
[[nodiscard]] double communication_seconds(const CommRecord& record, const GroupPlacement& placement,
                                           const NetworkSpec& network);

}  // namespace echelon
