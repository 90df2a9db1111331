// Which hardware threads share a core, a cache or a memory node, as Linux lists them below /sys/devices/system
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
#pragma once

#include "machine/cpus.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace echelon {

/// The caches of one level. Each group of hardware threads shares one.
struct CacheLevel {
  int level = 0;
  std::int64_t num_bytes = 0;  // of each
  std::vector<CpuSet> groups;
};

struct CpuTopology {
  std::vector<CpuSet> cores;         // each with its hardware threads
  std::vector<CacheLevel> caches;    // from the second level on; empty: unknown
  std::vector<CpuSet> memory_nodes;  // threads with the same memory channels; empty: unknown
};

/// Of these hardware threads alone. What the system does not list is left out; threads are then cores.
[[nodiscard]] CpuTopology read_topology(const CpuSet& cpus, const std::filesystem::path& root = "/sys/devices/system");

/// "2 cores, 1 thread each, own L2 (2 MiB), share L3 (480 MiB)"
[[nodiscard]] std::string to_string(const CpuTopology& topology);

}  // namespace echelon
