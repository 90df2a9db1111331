// rank = sum of coordinate * stride over the axes: mixed-radix digits. In the default order
// (((((cluster) * R + dp_replicate) * P + pp) * S + dp_shard) * C + cp) * T + tp.
#include "spec/mesh_shape.h"

#include "base/error.h"

#include <algorithm>
#include <limits>

namespace echelon {
namespace {

constexpr Axis axis_at(int index) { return static_cast<Axis>(index); }

// The part of `ranks` that `rank` belongs to.
std::vector<int> part_of(std::vector<int> ranks, const Group& group, int rank) {
  switch (group.part) {
    case Group::Part::all: return ranks;
    case Group::Part::ends:
      if (ranks.size() > 2) ranks = {ranks.front(), ranks.back()};
      return std::find(ranks.begin(), ranks.end(), rank) == ranks.end() ? std::vector<int>() : ranks;
    case Group::Part::block: {
      const auto size = static_cast<int>(ranks.size());
      require(group.block >= 1 && size % group.block == 0,
              "the group {} cannot be formed: its {} ranks do not split into blocks of {}", name_of(group), size,
              group.block);
      const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
      const auto first = ranks.begin() + position / group.block * group.block;
      return {first, first + group.block};
    }
  }
  return {};
}

}  // namespace

std::string name_of(const Group& group) {
  std::string name;
  for (int i = 0; i < num_axes; ++i)
    if (group.axes.contains(axis_at(i))) name += (name.empty() ? "" : "+") + std::string(name_of(axis_at(i)));
  if (group.axes == world_axes) name = "world";
  if (name.empty()) name = "self";
  switch (group.part) {
    case Group::Part::all: return name;
    case Group::Part::ends: return name + " ends";
    case Group::Part::block: return fmt::format("{}/{}", name, group.block);
  }
  return name;
}

MeshShape::MeshShape() { degrees_.fill(1); }

MeshShape::MeshShape(std::array<int, num_axes> degrees, const AxisOrder& order) : degrees_(degrees) {
  std::int64_t num_ranks = 1;
  for (int i = 0; i < num_axes; ++i) {
    const int degree = degrees[static_cast<std::size_t>(i)];
    require(degree >= 1, "the mesh's {} degree = {} is below 1; nearest: 1", name_of(axis_at(i)), degree);
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

std::vector<int> MeshShape::ranks_of(const Group& group, int rank) const {
  Coordinates start = coordinates_of(rank);
  for (std::size_t i = 0; i < num_axes; ++i)
    if (group.axes.contains(axis_at(static_cast<int>(i)))) start[i] = 0;
  std::vector<int> ranks = {rank_of(start)};
  for (std::size_t i = 0; i < num_axes; ++i) {
    if (!group.axes.contains(axis_at(static_cast<int>(i)))) continue;
    std::vector<int> wider;
    for (const int base : ranks)
      for (int k = 0; k < degrees_[i]; ++k) wider.push_back(base + k * strides_[i]);
    ranks.swap(wider);
  }
  return part_of(std::move(ranks), group, rank);
}

int MeshShape::group_size(const Group& group, int rank) const { return static_cast<int>(ranks_of(group, rank).size()); }

}  // namespace echelon
