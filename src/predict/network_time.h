// Seconds of one collective or transfer among the ranks of a group, from the algorithm that libraries use, the links between its members and the groups that
// use the same links at the same time.
#pragma once

#include "comm/trace/trace_mesh.h"
#include "predict/device_map.h"

namespace echelon {

/// As `rank` records it. The ranks of the other groups of the same axes communicate at the same time and share the cards of their nodes.
[[nodiscard]] double communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices);

}  // namespace echelon
