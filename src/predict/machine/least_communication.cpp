#include "predict/machine/least_communication.h"

#include "predict/machine/network_time.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

namespace echelon {
namespace {

/// The only axis of the group that has more than one rank.
std::optional<Axis> only_axis(const Group& group, const MeshShape& mesh) {
  std::optional<Axis> only;
  for (int i = 0; i < num_axes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (!group.axes.contains(axis) || mesh.degree(axis) == 1) continue;
    if (only) return std::nullopt;
    only = axis;
  }
  return only;
}

/// First ranks of groups along the axis, one for each place in a block of ranks at which one starts. They are `low` +
/// `high` stride degree with low < stride, and both repeat themselves.
std::vector<int> first_ranks(const MeshShape& mesh, Axis axis, int block) {
  const int stride = mesh.stride(axis), step = stride * mesh.degree(axis);
  const int num_high = std::min(mesh.num_ranks() / step, block / std::gcd(step, block));
  std::set<int> places;
  std::vector<int> ranks;
  for (int low = 0; low < std::min(stride, block); ++low)
    for (int high = 0; high < num_high; ++high)
      if (places.insert((low + high * step) % block).second) ranks.push_back(low + high * step);
  return ranks;
}

}  // namespace

double least_communication_seconds(const CommRecord& record, int rank, const DeviceMap& devices) {
  const MeshShape& mesh = devices.mesh();
  if (devices.is_regular() || record.group.axes == step_axes) return communication_seconds(record, rank, devices);
  const auto axis = only_axis(record.group, mesh);
  if (!axis) return 0;
  const NodeSpec& node = devices.kind_of(0);
  const std::int64_t nodes = devices.counts_leaves() ? devices.machine().network.nodes_per_leaf : 1;
  const Group& group = record.group;
  const int own = mesh.coordinate(rank, *axis), block = group.part == Group::Part::block ? group.block : group.within,
            part = block > 0 ? block : mesh.degree(*axis);
  double least = std::numeric_limits<double>::max();
  for (const int first : first_ranks(mesh, *axis, static_cast<int>(nodes * node.num_devices)))
    for (int coordinate = own % part; coordinate < mesh.degree(*axis); coordinate += part)
      least = std::min(least, communication_seconds(record, first + coordinate * mesh.stride(*axis), devices));
  return least;
}

}  // namespace echelon
