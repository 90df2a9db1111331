#include "predict/machine/network_time.h"

#include "predict/machine/collective_time.h"
#include "spec/groups.h"

namespace echelon {
namespace {

bool is_transfer(CommKind kind) { return kind == CommKind::send || kind == CommKind::receive; }

/// In a ring every rank sends while it receives.
bool takes_time(const CommRecord& record) {
  const bool is_sent_meanwhile = record.kind == CommKind::receive && record.group.axes == cp_group.axes;
  return record.group_size > 1 && !is_sent_meanwhile;
}

/// The rank of a group's member; of a group along one axis without a list of its ranks.
int member(const MeshShape& mesh, const Group& group, int rank, int index) {
  for (int i = 0; i < num_axes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (group.part != Group::Part::all || group.axes != AxisSet{axis}) continue;
    Coordinates coordinates = mesh.coordinates_of(rank);
    coordinates[static_cast<std::size_t>(axis)] = index;
    return mesh.rank_of(coordinates);
  }
  return mesh.ranks_of(group, rank)[static_cast<std::size_t>(index)];
}

}  // namespace

double communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices) {
  if (!takes_time(record)) return 0;
  return communication_seconds(record, placement_of(record, rank, devices), devices.machine().network);
}

double communication_seconds(const CommRecord& record, const GroupPlacement& placement, const NetworkSpec& network) {
  if (!takes_time(record)) return 0;
  const double bytes = static_cast<double>(record.num_elements * size_of(record.dtype));
  return collective_seconds(record.kind, bytes, placement, network);
}

GroupPlacement placement_of(const CommRecord& record, int rank, const DeviceMap& devices) {
  const Group& group = record.group;
  if (record.kind == CommKind::send && group.axes == cp_group.axes)
    return devices.placement_of_rings(Axis::cp, group.part == Group::Part::strided ? group.block : 1, rank);
  if (group.axes == cp_group.axes && group.part == Group::Part::block)
    return devices.placement_of_blocks(Axis::cp, group.block, rank);
  if (!is_transfer(record.kind)) return devices.placement_of(record.group, rank);
  return devices.placement_of_pair(rank, member(devices.mesh(), record.group, rank, record.peer));
}

}  // namespace echelon
