#include "machine/cores.h"

namespace echelon {

bool knows_topology() { return false; }

std::vector<CpuSet> cores_among(const CpuSet& cpus) {
  std::vector<CpuSet> cores;
  cores.reserve(cpus.size());
  for (const int cpu : cpus) cores.push_back({cpu});
  return cores;
}

}  // namespace echelon
