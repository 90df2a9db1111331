// Topology of cores: which hardware threads are one core, and which cores share caches and memory. Uses hwloc if it is
// available (cores_hwloc.cpp). Otherwise (cores_plain.cpp) every hardware thread counts as a core, and adjacent ids are
// neighbours.
#pragma once

#include "machine/cpus.h"

namespace echelon {

/// Whether hwloc is available.
[[nodiscard]] bool knows_topology();

/// The cores of `cpus`, each with its hardware threads that are in `cpus`. Neighbours are adjacent in the list.
[[nodiscard]] std::vector<CpuSet> cores_among(const CpuSet& cpus);

/// Divides the cores of `cpus` as evenly as possible into shares of whole, neighbouring cores. Empty if there are fewer
/// cores than shares.
[[nodiscard]] std::vector<CpuSet> divide_cores(const CpuSet& cpus, int num_shares);

}  // namespace echelon
