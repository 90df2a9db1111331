// Seconds of one collective or transfer of a group by the fastest of NCCL's algorithms, or by what was measured. The
// algorithms are rings, double binary trees over nodes (Sanders, Speck, Traeff 2009) and sums inside the switch (NVLink
// and InfiniBand SHARP), each with NCCL's three protocols.
//
//   seconds = start + hops latency + passes bytes / bandwidth
#pragma once

#include "comm/trace/trace_mesh.h"
#include "predict/machine/device_map.h"

namespace echelon {

/// `bytes`: of the whole buffer. Allocates nothing.
[[nodiscard]] double collective_seconds(CommKind kind, double bytes, const GroupPlacement& placement,
                                        const NetworkSpec& network);

/// Seconds of a buffer between measured sizes and group sizes; none where the collective was not measured. Below the
/// smallest size it takes as long as that, above the largest as long as that times the ratio of the sizes.
[[nodiscard]] std::optional<double> measured_seconds(const NodeLink& link, Collective collective, double bytes,
                                                     int num_ranks);

}  // namespace echelon
