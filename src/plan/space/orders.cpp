#include "plan/space/orders.h"

#include "predict/machine/device_map.h"
#include "spec/groups.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>

namespace echelon {
namespace {

/// Those over which layers communicate.
constexpr std::array layer_axes = {Axis::tp, Axis::cp};

/// How many nodes, and how many switches, a group of each axis spans. So do parts of groups: ranks of context
/// parallelism that exchange heads, the links of the rings across them, and ranks that have experts together, or the
/// same ones. None where that differs from rank to rank. Switches count where they are oversubscribed.
std::optional<std::vector<int>> spread_of(std::span<const Axis> axes, const PlanShape& shape, const MeshShape& mesh,
                                          const MachineSpec& machine) {
  const DeviceMap devices(mesh, machine);
  const int head_ranks = shape.exchange.head_ranks, expert_ranks = static_cast<int>(num_expert_ranks(shape));
  if (!devices.is_regular()) return std::nullopt;
  std::vector<int> spread;
  const auto add = [&](const GroupPlacement& placement) {
    spread.push_back(placement.num_nodes);
    spread.push_back(devices.counts_leaves() ? placement.num_leaves : 1);
  };
  for (const Axis axis : axes) add(devices.placement_of({.axes = AxisSet{axis}}, 0));
  if (head_ranks > 1 && head_ranks < mesh.degree(Axis::cp)) {
    add(devices.placement_of_blocks(Axis::cp, head_ranks, 0));
    add(devices.placement_of_rings(Axis::cp, head_ranks, 0));
  }
  if (shape.divides_experts_as_dense) return spread;
  if (!has_equal_expert_groups(shape, machine)) return std::nullopt;
  if (expert_ranks > 1) add(devices.placement_of(expert_group(expert_ranks), 0));
  if (const auto inside = static_cast<int>(inner_expert_ranks(shape)); inside > 1)
    for (const Group& group : {expert_inner_group(inside), expert_across_group(expert_ranks, inside)})
      add(devices.placement_of(group, 0));
  if (axes.size() == layer_axes.size()) return spread;
  add(devices.placement_of(expert_holders_group(expert_ranks), 0));
  return spread;
}

/// Whether layers communicate at all, where that takes different times.
bool has_layer_groups(const PlanShape& shape, const PlanRequest& request) {
  return shape.tp * shape.cp * num_expert_ranks(shape) > 1 && !request.machine.host;
}

}  // namespace

const PlanOrders::Known& PlanOrders::known(const PlanShape& shape, const PlanData& data) {
  const auto [found, is_new] =
      known_.try_emplace({layer_degrees(shape), shape.divides_experts_as_dense, shape.pp, data.replicate, data.shard});
  Known& own = found->second;
  if (!is_new) return own;
  const AxisOrder all;
  std::vector<std::optional<std::vector<int>>> spreads;
  for (const AxisOrder& order : space_->orders(shape, data)) {
    auto spread = spread_of(all.axes(), shape, space_->mesh_of(shape, data, order), request_->machine);
    const auto same = spread ? std::find(spreads.begin(), spreads.end(), spread) : spreads.end();
    own.stand_ins.push_back(static_cast<std::size_t>(same - spreads.begin()));
    if (same != spreads.end()) continue;
    spreads.push_back(std::move(spread));
    own.different.push_back(order);
    own.by_placement[placement_of(shape, space_->mesh_of(shape, data, order))].push_back(order);
  }
  return own;
}

TensorPlacement PlanOrders::placement_of(const PlanShape& shape, const MeshShape& mesh) {
  if (!has_layer_groups(shape, *request_)) return any_placement;
  const auto spread = spread_of(layer_axes, shape, mesh, request_->machine);
  if (!spread) return any_placement;
  std::vector<Placement>& known = placements_[layer_degrees(shape)];
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const Placement& each) { return each.spread == *spread; });
  if (found != known.end()) return static_cast<TensorPlacement>(found - known.begin());
  known.push_back({*spread, mesh});
  return static_cast<TensorPlacement>(known.size()) - 1;
}

std::vector<TensorPlacement> PlanOrders::placements(const PlanShape& shape) {
  std::set<TensorPlacement> all;
  for (const PlanData& data : space_->data_layouts(shape))
    for (const auto& [placement, orders] : known(shape, data).by_placement) all.insert(placement);
  return {all.begin(), all.end()};
}

const std::vector<AxisOrder>& PlanOrders::of(const PlanShape& shape, const PlanData& data, TensorPlacement placement) {
  static const std::vector<AxisOrder> none;
  const auto& all = known(shape, data).by_placement;
  const auto found = all.find(placement);
  return found == all.end() ? none : found->second;
}

/// With the other ranks inside, between and outside of the axes in every way.
std::vector<MeshShape> PlanOrders::meshes_of_layer_axes(const PlanShape& shape) const {
  const std::int64_t num_groups = request_->num_devices / (shape.tp * shape.cp);
  std::vector<MeshShape> meshes;
  const auto add = [&](std::int64_t inside, std::int64_t between, Axis inner, Axis outer) {
    const PlanShape around = {.tp = shape.tp, .pp = between, .cp = shape.cp};
    const PlanData data = {.replicate = num_groups / inside / between, .shard = inside};
    meshes.push_back(space_->mesh_of(
        around, data, AxisOrder(std::vector{Axis::dp_shard, inner, Axis::pp, outer, Axis::dp_replicate})));
  };
  for (std::int64_t inside = 1; inside <= num_groups; ++inside) {
    if (num_groups % inside != 0) continue;
    for (std::int64_t between = 1; between <= num_groups / inside; ++between) {
      if (num_groups / inside % between != 0) continue;
      add(inside, between, Axis::tp, Axis::cp);
      if (shape.tp > 1 && shape.cp > 1) add(inside, between, Axis::cp, Axis::tp);
      if (shape.tp == 1 || shape.cp == 1) break;
    }
  }
  return meshes;
}

/// An expert group has ranks of up to three axes: every order of all axes, with every number of other ranks on each.
/// Where its ranks are depends on the strides of the three alone.
std::vector<MeshShape> PlanOrders::meshes_of_experts(const PlanShape& shape) const {
  const std::int64_t of_group = shards_of_experts(shape), others = request_->num_devices / (shape.tp * shape.cp);
  std::vector<MeshShape> meshes;
  std::set<std::array<int, 3>> strides;
  for (std::int64_t shard = of_group; shard <= others; shard += of_group) {
    if (others % shard != 0) continue;
    for (std::int64_t pp = 1; pp <= others / shard; ++pp) {
      if (others / shard % pp != 0) continue;
      const PlanShape around = {.tp = shape.tp, .pp = pp, .cp = shape.cp, .ranks_per_node = shape.ranks_per_node};
      const PlanData data = {.replicate = others / shard / pp, .shard = shard};
      for (const AxisOrder& order : space_->orders(around, data)) {
        const MeshShape mesh = space_->mesh_of(around, data, order);
        if (strides.insert({mesh.stride(Axis::tp), mesh.stride(Axis::cp), mesh.stride(Axis::dp_shard)}).second)
          meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

const std::vector<MeshShape>& PlanOrders::of_layer_axes(const PlanShape& shape) {
  const auto [found, is_new] = layer_meshes_.try_emplace(layer_degrees(shape));
  std::vector<MeshShape>& meshes = found->second;
  if (!is_new) return meshes;
  std::set<std::optional<std::vector<int>>> spreads;
  for (const MeshShape& mesh : num_expert_ranks(shape) > 1 ? meshes_of_experts(shape) : meshes_of_layer_axes(shape)) {
    const auto spread = spread_of(layer_axes, shape, mesh, request_->machine);
    if (!spread || spreads.insert(spread).second) meshes.push_back(mesh);
    if (!has_layer_groups(shape, *request_)) break;
  }
  return meshes;
}

const std::vector<AxisOrder>& PlanOrders::of(const PlanShape& shape, const PlanData& data) {
  return known(shape, data).different;
}

const AxisOrder& PlanOrders::stand_in(const PlanShape& shape, const PlanData& data, const AxisOrder& order) {
  const std::vector<AxisOrder>& all = space_->orders(shape, data);
  const Known& own = known(shape, data);
  return own.different[own.stand_ins[static_cast<std::size_t>(std::find(all.begin(), all.end(), order) - all.begin())]];
}

}  // namespace echelon
