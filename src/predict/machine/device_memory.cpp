#include "predict/machine/device_memory.h"

#include "spec/groups.h"

#include <algorithm>
#include <set>

namespace echelon {

int num_communicators(const MeshShape& mesh, bool has_tied_weight) {
  std::set<AxisSet> groups;
  for (const Group& group :
       {step_group, data_group, shard_group, replicate_group, tp_group, cp_group, pipeline_group}) {
    AxisSet axes;
    for (int axis = 0; axis < num_axes; ++axis)
      if (group.axes.contains(static_cast<Axis>(axis)) && mesh.degree(static_cast<Axis>(axis)) > 1)
        axes = axes | AxisSet{static_cast<Axis>(axis)};
    if (axes != AxisSet()) groups.insert(axes);
  }
  const int num_stages = mesh.degree(Axis::pp),
            num_neighbours = std::min(num_stages - 1, 2) + std::min(mesh.degree(Axis::cp) - 1, 2);
  const int of_ends = has_tied_weight && num_stages > 2 ? 1 : 0;  // the ends of two stages are all of them
  return static_cast<int>(groups.size()) + 2 * num_neighbours + of_ends;
}

std::int64_t arena_limit_bytes(const DeviceSpec& device, int num_communicators) {
  return std::max<std::int64_t>(
      0, device.memory_bytes - device.reserved_bytes - num_communicators * device.communicator_bytes);
}

}  // namespace echelon
