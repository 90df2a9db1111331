// What the units of a model cost on one rank, from the traces that a blueprint folds: embedding, one block as it is,
// one block that is recomputed, and head. Layouts that share tensor degree, microbatch and recomputation share these,
// so a search traces each kind of unit once.
#pragma once

#include "blueprint/unit_trace.h"
#include "plan/space/orders.h"
#include "predict/step/action_cost.h"

#include <array>
#include <list>
#include <map>
#include <optional>
#include <tuple>

namespace echelon {

/// Embedding, a decoder block, or the head.
struct UnitCost {
  const UnitPasses* passes = nullptr;
  std::array<double, num_pass_kinds> seconds = {};  // of the first microbatch, at least
  // Of the first microbatch whose weight gradients are computed, and of all others.
  std::array<ActionCost, num_pass_kinds> first = {}, later = {};
};

struct LayerCosts {
  UnitCost embedding, block, recomputed_block, head;
  std::int64_t boundary_bytes = 0, boundary_elements = 0;  // of x between stages or units
  DType dtype{};
};

/// Of one unit, as the data axes hold it.
struct UnitState {
  std::int64_t persistent_bytes = 0;  // parameters, gradients, optimizer states
  std::int64_t whole_param_bytes = 0, whole_grad_bytes = 0, converted_grad_bytes = 0;
  bool sums_replicas = false;
  // Of the data axes, the optimizer and the unit's part of clearing and clipping.
  std::map<ActionKind, ActionCost> costs = {};
};

/// Of all units. The tied weight is the first stage's; its copy the last one's on another rank.
struct UnitStates {
  UnitState embedding, block, head, tied_weight, tied_copy;
  double factor_seconds = 0;  // of the factor of all gradients, after their norm
  std::int64_t constant_bytes = 0;
  bool converts_gradients = false;
};

/// What bounds know of a unit's state on the whole mesh.
struct UnitSeconds {
  double reduce = 0;        // of its gradients: once a step, from ZeRO-2 on once a microbatch
  double reduce_parts = 0;  // over replicas of a sharded model
  double gather = 0;        // of its parameters
  double update = 0;
  double clear = 0, squares = 0;  // of its gradients
};

struct StateCosts {
  const UnitStates* traces = nullptr;
  UnitSeconds embedding, block, head, tied_weight;
  double scalar_seconds = 0;  // a sum over all ranks
};

/// Memoised; not thread-safe.
class CostTable {
 public:
  CostTable(const PlanSpace& space, const PlanRequest& request);

  [[nodiscard]] PlanOrders& orders() { return orders_; }
  /// Seconds are those where tensor-parallel groups lie closest, of all orders.
  [[nodiscard]] const LayerCosts& layers(const PlanShape& shape, const BlockOperations& recomputed);
  /// Seconds are those on the mesh. The same object, where none are longer.
  [[nodiscard]] const LayerCosts& layers(const PlanShape& shape, const BlockOperations& recomputed,
                                         const MeshShape& mesh);
  [[nodiscard]] const UnitStates& traces(const PlanShape& shape, const PlanData& data);
  /// Seconds are each those under the order that is best for it.
  [[nodiscard]] const StateCosts& state(const PlanShape& shape, const PlanData& data) {
    return state_of({shape, data, std::nullopt});
  }
  [[nodiscard]] const StateCosts& state(const PlanShape& shape, const PlanData& data, const AxisOrder& order) {
    return state_of({shape, data, order});
  }
  /// Of a boundary to the next stage, at least.
  [[nodiscard]] double transfer_seconds(const PlanShape& shape, const MeshShape& mesh);

 private:
  using LayerKey = std::tuple<std::int64_t, bool, std::int64_t, BlockOperations>;
  using TraceKey = std::tuple<std::int64_t, bool, std::int64_t, std::int64_t, std::int64_t>;
  using StateKey = std::tuple<TraceKey, std::int64_t, std::optional<AxisOrder>>;
  struct DataOrder {
    const PlanShape& shape;
    const PlanData& data;
    std::optional<AxisOrder> order;
  };

  [[nodiscard]] LayerCosts traced_layers(const PlanShape& shape, const BlockOperations& recomputed);
  [[nodiscard]] UnitStates states_of_units(const PlanShape& shape, const PlanData& data);
  [[nodiscard]] const StateCosts& state_of(const DataOrder& at);
  [[nodiscard]] StateCosts costs_of_state(const PlanShape& shape, const PlanData& data, const AxisOrder& order);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTimer timer_;
  PlanOrders orders_;
  std::list<UnitTraces> unit_traces_;  // to which costs refer
  std::map<LayerKey, LayerCosts> layers_;
  std::map<std::pair<LayerKey, int>, const LayerCosts*> placed_layers_;  // by the stride of the tensor axis
  std::list<LayerCosts> slower_layers_;
  std::map<TraceKey, UnitStates> traces_;
  std::map<StateKey, StateCosts> states_;
  // By the stride of the pipeline axis and the numbers of a boundary.
  std::map<std::pair<int, std::int64_t>, double> transfers_;
};

}  // namespace echelon
