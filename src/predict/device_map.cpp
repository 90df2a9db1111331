#include "predict/device_map.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

DeviceMap::DeviceMap(const MeshShape& mesh, const MachineSpec& machine) : mesh_(mesh), machine_(&machine) {
  const auto available = machine.num_devices();
  require(!available || *available >= mesh.num_ranks(), "the layout has {} ranks, but the machine '{}' has {} devices; nearest: {}", mesh.num_ranks(),
          machine.name, available.value_or(0), available.value_or(0));
  int first_rank = 0, first_node = 0;
  for (const NodeSpec& kind : machine.nodes) {
    stretches_.push_back({first_rank, first_node, &kind});
    if (kind.count == 0) break;  // it takes all that is left
    first_node += static_cast<int>(kind.count);
    first_rank += static_cast<int>(kind.count * kind.num_devices);
  }
}

const DeviceMap::Stretch& DeviceMap::stretch_of(int rank) const {
  const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), rank, [](int each, const Stretch& stretch) { return each < stretch.first_rank; });
  return *(behind - 1);
}

int DeviceMap::node_of(int rank) const {
  const Stretch& stretch = stretch_of(rank);
  return stretch.first_node + (rank - stretch.first_rank) / static_cast<int>(stretch.kind->num_devices);
}

const NodeSpec& DeviceMap::kind_of(int rank) const { return *stretch_of(rank).kind; }

}  // namespace echelon
