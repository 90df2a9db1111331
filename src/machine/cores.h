// Cores and their neighbourhood: which hardware threads are one core, and which cores share caches and memory. By hwloc
// where it is there (cores_hwloc.cpp); without it (cores_plain.cpp) every hardware thread counts as a core, and
// neighbours are those whose numbers are.
#pragma once

#include "machine/cpus.h"

namespace echelon {

/// Whether hwloc is there.
[[nodiscard]] bool knows_topology();

/// The cores that `cpus` lie on, each with those of its hardware threads that are in `cpus`; neighbours stand next to
/// each other.
[[nodiscard]] std::vector<CpuSet> cores_among(const CpuSet& cpus);

/// Cuts the cores among `cpus` into shares of whole, neighbouring cores, as even as they go. Empty if there are fewer
/// cores than shares.
[[nodiscard]] std::vector<CpuSet> divide_cores(const CpuSet& cpus, int num_shares);

}  // namespace echelon
