// rank = sum of coordinate * stride over the axes: mixed-radix digits. In the default order
// (((((cluster) * R + dp_replicate) * P + pp) * S + dp_shard) * C + cp) * T + tp.
#include "spec/mesh_shape.h"

#include "base/error.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace echelon {
namespace {

constexpr Axis axis_at(int index) { return static_cast<Axis>(index); }

void require_blocks(const Group& group, int num_ranks) {
  if (group.block >= 1 && num_ranks % group.block == 0) return;
  throw Error(fmt::format("the group {} cannot be made: its {} ranks do not split into blocks of {}", name_of(group),
                          num_ranks, group.block));
}

/// Which of the ranks along a group's axes are in the group with the one at `all`: `size` of them, `stride` apart.
struct Members {
  int first = 0, size = 0, stride = 1;
};
Members members_of(const Group& group, GroupPlace all) {
  switch (group.part) {
    case Group::Part::all: return {0, all.size};
    case Group::Part::ends:
      if (all.index != 0 && all.index != all.size - 1) return {};
      return {0, std::min(all.size, 2), std::max(all.size - 1, 1)};
    case Group::Part::block:
      require_blocks(group, all.size);
      return {all.index / group.block * group.block, group.block};
    case Group::Part::strided: {
      const int within = group.within > 0 ? group.within : all.size;
      require_blocks(group, within);
      return {all.index / within * within + all.index % group.block, within / group.block, group.block};
    }
  }
  return {};
}

}  // namespace

std::string name_of(const Group& group) {
  std::string name;
  for (int i = 0; i < num_axes; ++i)
    if (group.axes.contains(axis_at(i))) name += (name.empty() ? "" : "+") + std::string(name_of(axis_at(i)));
  // With one cluster, the ranks of a step are the world.
  if (group.axes == world_axes || group.axes == step_axes) name = "world";
  if (name.empty()) name = "self";
  switch (group.part) {
    case Group::Part::all: return name;
    case Group::Part::ends: return name + " ends";
    case Group::Part::block: return fmt::format("{}/{}", name, group.block);
    case Group::Part::strided:
      if (group.within > 0) name += fmt::format("/{}", group.within);
      return fmt::format("{}%{}", name, group.block);
  }
  return name;
}

MeshShape::MeshShape(const AxisDegrees& degrees, const AxisOrder& order) : degrees_(degrees.by_axis()) {
  std::int64_t num_ranks = 1;
  for (int i = 0; i < num_axes; ++i) {
    const int degree = degrees_[static_cast<std::size_t>(i)];
    require(degree >= 1, "the mesh's {} degree = {} is below 1 (use 1)", name_of(axis_at(i)), degree);
    num_ranks *= degree;
    require(num_ranks <= std::numeric_limits<int>::max(),
            "the mesh's degrees multiply to more than {} ranks; make them smaller", std::numeric_limits<int>::max());
  }
  int stride = 1;
  const auto place = [&](Axis axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (degrees_[i] > 1) strides_[i] = stride;
    stride *= degrees_[i];
  };
  for (const Axis axis : order.axes()) place(axis);
  for (int i = num_axes; i-- > 0;)
    if (!order.names(axis_at(i))) place(axis_at(i));
}

int MeshShape::num_ranks() const {
  int product = 1;
  for (const int degree : degrees_) product *= degree;
  return product;
}

Coordinates MeshShape::coordinates_of(int rank) const {
  Coordinates coordinates{};
  for (std::size_t i = 0; i < num_axes; ++i)
    if (degrees_[i] > 1) coordinates[i] = rank / strides_[i] % degrees_[i];
  return coordinates;
}

int MeshShape::rank_of(const Coordinates& coordinates) const {
  int rank = 0;
  for (std::size_t i = 0; i < num_axes; ++i) rank += coordinates[i] * strides_[i];
  return rank;
}

GroupPlace MeshShape::along(AxisSet axes, int rank) const {
  const Coordinates coordinates = coordinates_of(rank);
  GroupPlace place = {.index = 0, .size = 1};
  for (std::size_t i = 0; i < num_axes; ++i) {
    if (!axes.contains(axis_at(static_cast<int>(i)))) continue;
    place = {.index = place.index * degrees_[i] + coordinates[i], .size = place.size * degrees_[i]};
  }
  return place;
}

GroupPlace MeshShape::place_in(const Group& group, int rank) const {
  const GroupPlace all = along(group.axes, rank);
  const Members members = members_of(group, all);
  if (members.size == 0) return {};
  return {.index = (all.index - members.first) / members.stride, .size = members.size};
}

std::vector<int> MeshShape::ranks_of(const Group& group, int rank) const {
  Coordinates start = coordinates_of(rank);
  for (std::size_t i = 0; i < num_axes; ++i)
    if (group.axes.contains(axis_at(static_cast<int>(i)))) start[i] = 0;
  const Members members = members_of(group, along(group.axes, rank));
  std::vector<int> ranks(static_cast<std::size_t>(members.size), rank_of(start));
  int index = members.first;
  for (int& each : ranks) {
    int rest = std::exchange(index, index + members.stride);
    for (std::size_t i = num_axes; i-- > 0;) {
      if (!group.axes.contains(axis_at(static_cast<int>(i)))) continue;
      each += rest % degrees_[i] * strides_[i];
      rest /= degrees_[i];
    }
  }
  return ranks;
}

}  // namespace echelon
