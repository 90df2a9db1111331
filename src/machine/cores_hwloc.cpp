#include "machine/cores.h"

#include "base/error.h"

#include <hwloc.h>

#include <algorithm>
#include <map>

namespace echelon {
namespace {

/// The machine's tree of packages, caches and cores, read once. Only compute objects are requested, which takes a few
/// milliseconds.
class Topology {
 public:
  Topology() {
    hwloc_topology_init(&topology_);
    hwloc_topology_set_all_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (hwloc_topology_load(topology_) != 0) throw Failure("hwloc cannot read this machine's topology");
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  /// Hardware threads in the order of the tree, each with the number of its core.
  [[nodiscard]] std::vector<std::pair<int, int>> cpus_and_cores() const {
    std::vector<std::pair<int, int>> pairs;
    for (hwloc_obj_t cpu = nullptr; (cpu = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_PU, cpu)) != nullptr;) {
      hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_CORE, cpu);
      pairs.emplace_back(static_cast<int>(cpu->os_index),
                         static_cast<int>((core != nullptr ? core : cpu)->logical_index));
    }
    return pairs;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

}  // namespace

bool knows_topology() { return true; }

std::vector<CpuSet> cores_among(const CpuSet& cpus) {
  static const std::vector<std::pair<int, int>> all = Topology().cpus_and_cores();  // constant while the program runs
  // Sorted by the core's number, which follows the tree.
  std::map<int, CpuSet> cores;
  for (const auto& [cpu, core] : all)
    if (std::binary_search(cpus.begin(), cpus.end(), cpu)) cores[core].push_back(cpu);
  std::vector<CpuSet> among;
  for (auto& [core, members] : cores) among.push_back(std::move(members));
  return among;
}

}  // namespace echelon
