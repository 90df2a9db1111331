// What the kinds of units of a model cost on one rank, from the traces that a blueprint folds. Layouts that share
// tensor degree, microbatch and recomputation share these, so a search traces each kind of unit once.
#pragma once

#include "blueprint/stage_units.h"
#include "blueprint/unit_trace.h"
#include "plan/bounds/shape_tracer.h"
#include "plan/space/orders.h"
#include "predict/step/action_cost.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

namespace echelon {

/// Of the first microbatch whose weight gradients are computed, and of all others.
struct PassCosts {
  std::array<ActionCost, num_pass_kinds> first = {}, later = {};  // later: as UnitPasses
  UnitPasses bytes = {};                                          // without events, of which a long ring has thousands

  [[nodiscard]] const ActionCost& of(std::size_t pass, bool is_first) const {
    return (is_first || !computes_weight_gradients(static_cast<PassKind>(pass)) ? first : later)[pass];
  }
};

/// The passes of a kind of unit; copies share what they cost.
struct UnitCost {
  UnitKind kind;
  std::shared_ptr<const PassCosts> costs = nullptr;
  std::array<double, num_pass_kinds> seconds = {};  // of the first microbatch, at least
};

struct LayerCosts {
  const ModelSpec* model = nullptr;
  std::vector<UnitCost> units = {};
  // Bounds assume that the head's matmul overwrites a tied weight's gradient, which costs least.
  TiedWeight tied = TiedWeight::none;
  std::int64_t boundary_bytes = 0;     // of x between stages or units
  std::int64_t boundary_elements = 0;  // that are sent between stages
  // Of a microbatch: tokens, targets and whatever else a step uploads, in int32 each.
  std::vector<std::int64_t> batch_elements = {};

  [[nodiscard]] const UnitCost& of(const UnitKind& kind) const;
  [[nodiscard]] const UnitCost& embedding() const { return of({.role = UnitKind::Role::embedding}); }
  [[nodiscard]] const UnitCost& head() const {
    return of({.role = UnitKind::Role::head, .is_overwritten_by_first_matmul = tied != TiedWeight::none});
  }
  template <class Visit>
  void for_blocks(const Visit& visit) const {
    for (const UnitCost& unit : units)
      if (unit.kind.role == UnitKind::Role::block) visit(unit);
  }
};

/// Of a kind of unit, as the data axes hold it.
struct UnitState {
  UnitKind kind;
  std::int64_t persistent_bytes = 0;  // parameters, gradients, optimizer states
  std::int64_t snapshot_bytes = 0;    // a checkpoint's copy of them, where that is in the rank's own memory
  std::int64_t whole_param_bytes = 0, whole_grad_bytes = 0, converted_grad_bytes = 0, converted_part_bytes = 0;
  bool sums_replicas = false;
  // Of the data axes, the optimizer and the unit's part of clearing and clipping.
  std::map<ActionKind, ActionCost> costs = {};
};

struct UnitStates {
  std::vector<UnitState> units = {};  // embedding, head, blocks, tied weight
  UnitState least_block = {};         // of the blocks with and without experts the least bytes and core seconds
  std::int64_t constant_bytes = 0;
  bool converts_gradients = false;

  [[nodiscard]] const UnitState& of(const UnitKind& kind) const;
  [[nodiscard]] const UnitState& embedding() const { return units[0]; }
  [[nodiscard]] const UnitState& head() const { return units[1]; }
  /// What bounds know of any block.
  [[nodiscard]] const UnitState& block() const { return least_block; }
  [[nodiscard]] const UnitState& block(bool has_experts) const {
    for (const UnitState& unit : units)  // asked for often, and found without making a kind
      if (unit.kind.role == UnitKind::Role::block && unit.kind.layer.has_experts == has_experts) return unit;
    return of({.role = UnitKind::Role::block, .layer = {.has_experts = has_experts}});
  }
  /// Summed over so many blocks, of which `num_mixtures` have experts.
  [[nodiscard]] std::int64_t of_blocks(std::int64_t UnitState::*bytes, std::int64_t num_blocks,
                                       std::int64_t num_mixtures) const {
    const std::int64_t num_dense = num_blocks - num_mixtures;
    return (num_dense > 0 ? num_dense * block(false).*bytes : 0) +
           (num_mixtures > 0 ? num_mixtures * block(true).*bytes : 0);
  }
  [[nodiscard]] bool has_several_blocks() const {
    int count = 0;
    for_blocks([&](const UnitState& /*block*/) { ++count; });
    return count > 1;
  }
  template <class Visit>
  void for_blocks(const Visit& visit) const {
    for (const UnitState& unit : units)
      if (unit.kind.role == UnitKind::Role::block) visit(unit);
  }
  /// That of the embedding where the head has a copy; null without one.
  [[nodiscard]] const UnitState* tied_weight() const { return units.back().kind.has_copy ? &units.back() : nullptr; }
  /// That of a rank which has the embedding, the head or both; null without a tied weight.
  [[nodiscard]] const UnitState* tied_weight(bool has_embedding, bool has_head) const {
    if (tied_weight() == nullptr) return nullptr;
    const bool has_copy = !has_embedding || !has_head;
    return &of({.role = UnitKind::Role::tied_weight,
                .has_copy = has_copy,
                .is_head_copy = has_copy && has_head,
                .is_overwritten_by_first_matmul = has_copy && has_head});
  }
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
  UnitSeconds embedding, block, head, tied_weight;  // block: the least of both of the next
  UnitSeconds dense, mixture;                       // blocks without and with experts
  double scalar_seconds = 0;                        // a sum over all ranks

  /// Of so many blocks, of which `num_mixtures` have experts: all together, and the one that takes longest.
  [[nodiscard]] double of_blocks(double UnitSeconds::*seconds, std::int64_t num_blocks,
                                 std::int64_t num_mixtures) const {
    return static_cast<double>(num_blocks - num_mixtures) * dense.*seconds +
           static_cast<double>(num_mixtures) * mixture.*seconds;
  }
  [[nodiscard]] double longest(double UnitSeconds::*seconds, std::int64_t num_blocks, std::int64_t num_mixtures) const {
    return std::max(num_blocks > num_mixtures ? dense.*seconds : 0, num_mixtures > 0 ? mixture.*seconds : 0);
  }
};

/// Degrees of a shape that decide what a unit's passes are: tp with and without sequence parallelism, microbatch, cp
/// with its method, ep, etp or dense branches' division, how rows are exchanged, cp's balancer; of documents also dp.
using PassDegrees = std::tuple<std::int64_t, bool, std::int64_t, std::int64_t, KeyExchange, std::int64_t, std::int64_t,
                               bool, std::int64_t, double, LoadBalancer, std::int64_t>;
/// What passes cost on any mesh. Other numbers of devices have the same, if they are not threads of a host.
struct KnownPasses {
  using OfUnits = std::map<std::pair<PassDegrees, UnitKind>, std::shared_ptr<const PassCosts>>;
  OfUnits all, first;   // first: of the first microbatch alone
  OfUnits unexchanged;  // the same, whatever ranks of context parallelism exchange
};

/// Memoised; not thread-safe.
class CostTable {
 public:
  /// `known`: of requests that differ in the number of devices alone; null: of this one.
  CostTable(const PlanSpace& space, const PlanRequest& request, KnownPasses* known);

  [[nodiscard]] PlanOrders& orders() { return orders_; }
  [[nodiscard]] CostTimer& timer() { return timer_; }
  /// Seconds are those with the closest placement of tensor-parallel groups, of all orders.
  [[nodiscard]] const LayerCosts& layers(const PlanShape& shape, const BlockOperations& recomputed);
  /// Its units without recomputation, with no more than their seconds: half the work of all that they cost.
  [[nodiscard]] const LayerCosts& first_layers(const PlanShape& shape);
  /// The same, whatever ranks of context parallelism exchange: no more than first_layers() has for any method, and most
  /// often much less work. Null where they are not known without them.
  [[nodiscard]] const LayerCosts* unexchanged_layers(const PlanShape& shape);
  /// Seconds are those on the mesh. The same object, where none are longer.
  [[nodiscard]] const LayerCosts& layers(const PlanShape& shape, const BlockOperations& recomputed,
                                         const MeshShape& mesh);
  [[nodiscard]] const UnitStates& traces(const PlanShape& shape, const PlanData& data);
  /// Seconds are each those under the order that is best for it, of those with this placement.
  [[nodiscard]] const StateCosts& state(const PlanShape& shape, const PlanData& data, TensorPlacement placement) {
    return state_of({shape, data, std::nullopt, placement});
  }
  [[nodiscard]] const StateCosts& state(const PlanShape& shape, const PlanData& data, const AxisOrder& order) {
    return state_of({shape, data, order, any_placement});
  }
  /// Of a boundary to the next stage, at least.
  [[nodiscard]] double transfer_seconds(const PlanShape& shape, const MeshShape& mesh);

 private:
  using ShapeKey = PassDegrees;
  /// Of the kinds of units of a shape that were asked for.
  using KnownUnits = std::map<UnitKind, UnitCost>;
  using TraceKey = std::tuple<ShapeKey, std::int64_t, std::int64_t, std::int64_t>;
  // Also pp, and the ranks of a node, on which placements depend.
  using StateKey = std::tuple<TraceKey, std::int64_t, std::int64_t, std::optional<AxisOrder>, TensorPlacement>;
  struct DataOrder {
    const PlanShape& shape;
    const PlanData& data;
    std::optional<AxisOrder> order;  // otherwise those of the placement
    TensorPlacement placement;
  };

  [[nodiscard]] ShapeKey key_of(const PlanShape& shape) const {
    return {shape.tp,
            shape.sequence_parallel,
            shape.micro_batch_size,
            shape.cp,
            shape.exchange,
            shape.ep,
            shape.etp,
            shape.divides_experts_as_dense,
            shape.ranks_per_node,
            shape.dispatch_bound,
            shape.balancer,
            request_->documents == nullptr ? 0 : shape.dp};
  }
  [[nodiscard]] PassDegrees pass_degrees(const UnitKind& kind, const PlanShape& shape) const;
  [[nodiscard]] TraceKey key_of(const PlanShape& shape, const PlanData& data) const;
  [[nodiscard]] TiedWeight tied_weight() const;
  template <class Visit>
  void for_kinds(const BlockOperations& recomputed, const Visit& visit) const;
  /// Of a pass, with what documents leave of its attention.
  [[nodiscard]] ActionCost cost_of_pass(const CallTrace& trace, const DocumentAttention* documents);
  [[nodiscard]] std::shared_ptr<const PassCosts> costs_of(const UnitKind& kind, ShapeTracer& tracer);
  [[nodiscard]] UnitCost timed(const UnitKind& kind, std::shared_ptr<const PassCosts> costs, const PlanShape& shape);
  /// That of the shape before, most often: what blocks recompute is asked for one after the other.
  [[nodiscard]] ShapeTracer& tracer_of(const PlanShape& shape);
  [[nodiscard]] LayerCosts traced_layers(const PlanShape& shape, const BlockOperations& recomputed);
  [[nodiscard]] std::shared_ptr<const PassCosts> first_costs(const UnitKind& kind, const PlanShape& shape,
                                                             ShapeTracer& tracer);
  [[nodiscard]] bool has_even_tokens(const PlanShape& shape) const;
  [[nodiscard]] std::shared_ptr<const PassCosts> unexchanged_costs(const UnitKind& kind, const PlanShape& shape,
                                                                   ShapeTracer& tracer);
  [[nodiscard]] UnitStates states_of_units(const PlanShape& shape, const PlanData& data);
  [[nodiscard]] const StateCosts& state_of(const DataOrder& at);
  [[nodiscard]] StateCosts costs_of_state(const PlanShape& shape, const PlanData& data, const AxisOrder& order);

  const PlanSpace* space_;
  const PlanRequest* request_;
  CostTimer timer_;
  PlanOrders orders_;
  KnownPasses own_passes_;
  KnownPasses* passes_;
  std::optional<ShapeTracer> tracer_;
  ShapeKey traced_shape_;
  std::map<ShapeKey, KnownUnits> units_;
  /// By the strides of the tensor, the context and the shard axis, the last one with expert groups.
  using PlacedLayers = std::vector<std::pair<std::array<int, 3>, const LayerCosts*>>;
  struct LayersOfPlacements {
    LayerCosts closest;
    PlacedLayers placed = {};  // a few
  };
  using LayersOfShapes = std::map<ShapeKey, std::map<BlockOperations, LayersOfPlacements>>;
  [[nodiscard]] LayersOfPlacements& known_layers(const PlanShape& shape, const BlockOperations& recomputed);
  LayersOfShapes layers_;
  std::map<ShapeKey, LayerCosts> first_layers_, unexchanged_layers_;
  LayersOfShapes::iterator shape_ = layers_.end();  // that was asked for last: most often it is the next one too
  std::list<LayerCosts> slower_layers_;
  std::map<TraceKey, UnitStates> traces_;
  std::map<TraceKey, UnitStates>::iterator trace_ = traces_.end();  // likewise
  std::map<StateKey, StateCosts> states_;
  // By the stride of the pipeline axis and the numbers of a boundary.
  std::map<std::pair<int, std::int64_t>, double> transfers_;
};

}  // namespace echelon
