// Which orders of the axes a machine can tell apart. The time of a group depends on how many of its ranks are on one
// node and on one switch. Where two orders agree in that for each axis, every collective and every transfer takes the
// same, and one of the two represents both.
#pragma once

#include "plan/space/space.h"

#include <tuple>

namespace echelon {

/// How tensor-, context- and expert-parallel groups are placed on nodes and switches, as an index of PlanOrders; or any
/// way that is left, such as one that differs from group to group.
using TensorPlacement = int;
inline constexpr TensorPlacement any_placement = -1;

/// Whether every group of ranks that have experts together is on as few nodes as any other.
[[nodiscard]] inline bool has_equal_expert_groups(const PlanShape& shape, const MachineSpec& machine) {
  const std::int64_t of_node = machine.nodes.front().num_devices;
  const auto fits = [&](std::int64_t ranks) { return of_node % ranks == 0 || ranks % of_node == 0; };
  return fits(num_expert_ranks(shape)) && fits(shape.etp);
}

/// Memoised; not thread-safe. It refers to both.
class PlanOrders {
 public:
  PlanOrders(const PlanSpace& space, const PlanRequest& request) : space_(&space), request_(&request) {}

  /// Of the orders of the space those that no earlier one represents.
  [[nodiscard]] const std::vector<AxisOrder>& of(const PlanShape& shape, const PlanData& data);
  /// The placements that orders of the shape have, and those of its different orders that have this one.
  [[nodiscard]] std::vector<TensorPlacement> placements(const PlanShape& shape);
  [[nodiscard]] const std::vector<AxisOrder>& of(const PlanShape& shape, const PlanData& data,
                                                 TensorPlacement placement);
  /// A mesh with that placement.
  [[nodiscard]] const MeshShape& mesh_of(const PlanShape& shape, TensorPlacement placement) const {
    return placements_.at(layer_degrees(shape))[static_cast<std::size_t>(placement)].mesh;
  }
  /// Meshes with every placement of these groups that some order has.
  [[nodiscard]] const std::vector<MeshShape>& of_layer_axes(const PlanShape& shape);
  /// The one of the different ones that represents `order`.
  [[nodiscard]] const AxisOrder& stand_in(const PlanShape& shape, const PlanData& data, const AxisOrder& order);

 private:
  struct Known {
    std::vector<AxisOrder> different;
    std::vector<std::size_t> stand_ins;                              // by the order's place in the space
    std::map<TensorPlacement, std::vector<AxisOrder>> by_placement;  // the different ones
  };
  struct Placement {
    std::vector<int> spread;
    MeshShape mesh;
  };
  [[nodiscard]] TensorPlacement placement_of(const PlanShape& shape, const MeshShape& mesh);
  [[nodiscard]] const Known& known(const PlanShape& shape, const PlanData& data);

  [[nodiscard]] std::vector<MeshShape> meshes_of_layer_axes(const PlanShape& shape) const;
  [[nodiscard]] std::vector<MeshShape> meshes_of_experts(const PlanShape& shape) const;

  // tp, cp, the ranks of it that exchange heads, ep, etp, and the ranks of a node
  using LayerDegrees = std::tuple<std::int64_t, std::int64_t, int, std::int64_t, std::int64_t, std::int64_t>;
  [[nodiscard]] static LayerDegrees layer_degrees(const PlanShape& shape) {
    return {shape.tp, shape.cp, shape.exchange.head_ranks, shape.ep, shape.etp, shape.ranks_per_node};
  }

  const PlanSpace* space_;
  const PlanRequest* request_;
  std::map<std::tuple<LayerDegrees, bool, std::int64_t, std::int64_t, std::int64_t>, Known> known_;
  std::map<LayerDegrees, std::vector<MeshShape>> layer_meshes_;
  std::map<LayerDegrees, std::vector<Placement>> placements_;
};

}  // namespace echelon
