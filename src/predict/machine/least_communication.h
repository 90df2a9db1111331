// What communication takes at least where groups of one kind are placed differently on nodes: on a mesh that does not
// divide into them.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/machine/device_map.h"

namespace echelon {

/// Of all replicas of `rank`, that is, of all groups of the record's kind in which a rank has its place. Devices are of
/// one kind.
[[nodiscard]] double least_communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices);

}  // namespace echelon
