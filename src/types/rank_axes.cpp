#include "types/rank_axes.h"

#include "base/error.h"
#include "spec/groups.h"

#include <algorithm>
#include <set>

namespace echelon {
namespace {

constexpr std::array type_axes = {TypeAxis::dp_replicate, TypeAxis::pp, TypeAxis::dp_shard,  TypeAxis::cp,
                                  TypeAxis::cp_heads,     TypeAxis::tp, TypeAxis::kv_replica};

Axis mesh_axis(TypeAxis axis) {
  switch (axis) {
    case TypeAxis::dp_replicate: return Axis::dp_replicate;
    case TypeAxis::pp: return Axis::pp;
    case TypeAxis::dp_shard: return Axis::dp_shard;
    case TypeAxis::cp:
    case TypeAxis::cp_heads: return Axis::cp;
    case TypeAxis::tp:
    case TypeAxis::kv_replica: return Axis::tp;
  }
  return Axis::tp;
}

/// Of the two axes that a mesh's axis counts as: the one of neighbours.
bool is_inner(TypeAxis axis) { return axis == TypeAxis::cp_heads || axis == TypeAxis::kv_replica; }

}  // namespace

RankAxes::RankAxes(const MeshShape& shape, int rank, int kv_replicas, int head_ranks, const ExpertRanks& experts)
    : shape_(shape), rank_(rank), experts_(experts) {
  for (const TypeAxis axis : type_axes) {
    Place& place = places_[static_cast<std::size_t>(axis)];
    place = {shape.degree(mesh_axis(axis)), shape.coordinate(rank, mesh_axis(axis))};
    const int block = is_of_context(axis) ? head_ranks : kv_replicas;
    if (axis == TypeAxis::cp || axis == TypeAxis::tp) place = {place.degree / block, place.index / block};
    if (is_inner(axis)) place = {block, place.index % block};
    if (place.degree > 1) all_.push_back(axis);
  }
}

std::vector<TypeAxis> RankAxes::of(const Group& group) const {
  std::vector<TypeAxis> axes;
  if (group.axes == expert_axes && group.part != Group::Part::all) {
    const bool moves_rows = row_hop(group) != RowHop::none;
    if (group.block != experts_.num_ranks && !moves_rows)
      throw Failure(fmt::format("the group '{}' has the experts of {} ranks, but {} ranks have all", name_of(group),
                                group.block, experts_.num_ranks));
    if (shape_.group_size(group, rank_) == 1 && !moves_rows) return {};
    for (const TypeAxis axis : all_)
      if (divides_experts(axis)) axes.push_back(axis);
    return axes;
  }
  const bool is_block = group.part == Group::Part::block, is_strided = group.part == Group::Part::strided;
  const TypeAxis inner = group.axes.contains(Axis::tp) ? TypeAxis::kv_replica : TypeAxis::cp_heads;
  if ((is_block || is_strided) && group.block != degree(inner))
    throw Failure(fmt::format("the group '{}' is split into blocks of {}, but {} ranks {}", name_of(group), group.block,
                              degree(inner), inner == TypeAxis::cp_heads ? "exchange heads" : "hold the same kv head"));
  for (const TypeAxis axis : all_)
    if (group.axes.contains(mesh_axis(axis)) && (is_inner(axis) ? !is_strided : !is_block)) axes.push_back(axis);
  return axes;
}

RankAxes::RowHop RankAxes::row_hop(const Group& group) const {
  const auto& [num_ranks, inside, divide_features] = experts_;
  if (num_ranks == 1 || group.axes != expert_axes) return RowHop::none;
  if (inside == 0) return group == expert_group(num_ranks) ? RowHop::direct : RowHop::none;
  if (group == expert_across_group(num_ranks, inside)) return RowHop::across;
  return group == expert_inner_group(inside) ? RowHop::inside : RowHop::none;
}

bool RankAxes::divides_experts(TypeAxis axis) const {
  return experts_.num_ranks > 1 && expert_axes.contains(mesh_axis(axis));
}

GroupPlace RankAxes::expert_holders() const { return shape_.place_in(expert_holders_group(experts_.num_ranks), rank_); }

std::string RankAxes::name(TypeAxis axis) const {
  std::string name(name_of(mesh_axis(axis)));
  const bool is_whole = axis == TypeAxis::cp_heads && !spans(TypeAxis::cp);
  if (is_inner(axis) && !is_whole) name += fmt::format("/{}", degree(axis));
  return name;
}

std::string RankAxes::names(const std::vector<TypeAxis>& axes) const {
  std::string names;
  for (const TypeAxis axis : axes) names += (names.empty() ? "" : "+") + name(axis);
  return names;
}

std::vector<int> representative_ranks(const MeshShape& shape, int kv_replicas, int head_ranks, int expert_ranks) {
  std::set<int> ranks;
  for (int stage = 0; stage < shape.degree(Axis::pp); ++stage) {
    Coordinates first{};
    first[static_cast<std::size_t>(Axis::pp)] = stage;
    ranks.insert(shape.rank_of(first));
    const auto add = [&](Axis axis, int index) {
      Coordinates next = first;
      next[static_cast<std::size_t>(axis)] = index;
      if (index < shape.degree(axis)) ranks.insert(shape.rank_of(next));
    };
    for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp}) add(axis, 1);
    add(Axis::tp, kv_replicas);
    add(Axis::cp, head_ranks);
    if (expert_ranks == 1) continue;
    // The next rank with the same experts as the first.
    const std::vector<int> holders = shape.ranks_of(expert_holders_group(expert_ranks), shape.rank_of(first));
    if (holders.size() > 1) ranks.insert(holders[1]);
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace echelon
