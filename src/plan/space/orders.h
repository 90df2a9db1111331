// Which orders of the axes a machine can tell apart. The time of a group depends on how many of its ranks are on one
// node and on one switch. Where two orders agree in that for each axis, every collective and every transfer takes the
// same, and one of the two represents both.
#pragma once

#include "plan/space/space.h"

#include <tuple>

namespace echelon {

/// Memoised; not thread-safe. It refers to both.
class PlanOrders {
 public:
  PlanOrders(const PlanSpace& space, const PlanRequest& request) : space_(&space), request_(&request) {}

  /// Of the orders of the space those that no earlier one represents.
  [[nodiscard]] const std::vector<AxisOrder>& of(const PlanShape& shape, const PlanData& data);
  /// Meshes with every placement of tensor-parallel groups that some order has.
  [[nodiscard]] const std::vector<MeshShape>& of_tensor_axis(std::int64_t tp);
  /// The one of the different ones that represents `order`.
  [[nodiscard]] const AxisOrder& stand_in(const PlanShape& shape, const PlanData& data, const AxisOrder& order);

 private:
  struct Known {
    std::vector<AxisOrder> different;
    std::vector<std::size_t> stand_ins;  // by the order's place in the space
  };
  [[nodiscard]] const Known& known(const PlanShape& shape, const PlanData& data);

  const PlanSpace* space_;
  const PlanRequest* request_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, Known> known_;
  std::map<std::int64_t, std::vector<MeshShape>> tensor_meshes_;
};

}  // namespace echelon
