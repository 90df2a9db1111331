// CostTable's part for the states of units: parameters, gradients and optimizer states, as the data axes hold them.
#include "blueprint/lifetimes.h"
#include "plan/bounds/unit_costs.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

UnitSeconds least_of(const UnitSeconds& x, const UnitSeconds& y) {
  return UnitSeconds{.reduce = std::min(x.reduce, y.reduce),
                     .reduce_parts = std::min(x.reduce_parts, y.reduce_parts),
                     .gather = std::min(x.gather, y.gather),
                     .update = std::min(x.update, y.update),
                     .clear = std::min(x.clear, y.clear),
                     .squares = std::min(x.squares, y.squares)};
}

StateCosts least_of(const StateCosts& a, const StateCosts& b) {
  return {.traces = a.traces,
          .embedding = least_of(a.embedding, b.embedding),
          .block = least_of(a.block, b.block),
          .head = least_of(a.head, b.head),
          .tied_weight = least_of(a.tied_weight, b.tied_weight),
          .dense = least_of(a.dense, b.dense),
          .mixture = least_of(a.mixture, b.mixture),
          .scalar_seconds = std::min(a.scalar_seconds, b.scalar_seconds)};
}

/// Their least bytes and core seconds: what communicates has no order without a mesh.
UnitState least_of(UnitState a, const UnitState& b) {
  for (std::int64_t UnitState::*bytes :
       {&UnitState::persistent_bytes, &UnitState::snapshot_bytes, &UnitState::whole_param_bytes,
        &UnitState::whole_grad_bytes, &UnitState::converted_grad_bytes, &UnitState::converted_part_bytes})
    a.*bytes = std::min(a.*bytes, b.*bytes);
  for (auto& [kind, cost] : a.costs) {
    const auto other = b.costs.find(kind);
    cost = {.core_seconds = other == b.costs.end() ? 0 : std::min(cost.core_seconds, other->second.core_seconds)};
  }
  return a;
}

/// Of a whole copy of a unit in the rank's own memory; a GPU's is in its host's.
std::int64_t snapshot_bytes(const ModelPart& part, int unit, const RunConfig& config) {
  if (config.training.device == DeviceChoice::cuda) return 0;
  CheckpointConfig whole = config.checkpoint;
  whole.snapshot_bytes = -1;
  std::int64_t bytes = 0;
  for (const PlannedBuffer& buffer : snapshot_buffers(part, whole, config.training.device))
    if (buffer.key.index == unit) bytes += buffer.num_bytes;
  return bytes;
}

}  // namespace

/// The rows of a rank are rounded up for whole microbatches, unless its tokens divide well anyway. Which rank has the
/// most pairs depends on the method, unless all have as many.
CostTable::TraceKey CostTable::key_of(const PlanShape& shape, const PlanData& data) const {
  const bool is_even =
      shape.balancer == LoadBalancer::headtail && request_->base.training.seq_len % (2 * shape.cp) == 0;
  PlanShape of_state = shape;
  of_state.dp = 0;
  if (is_even) of_state.exchange = {};
  if (has_even_tokens(shape)) of_state.micro_batch_size = 0;
  of_state.ranks_per_node = 0;
  of_state.dispatch_bound = 0;
  return {key_of(of_state), data.replicate, data.shard, data.zero_level};
}

const UnitStates& CostTable::traces(const PlanShape& shape, const PlanData& data) {
  const TraceKey key = key_of(shape, data);
  if (trace_ != traces_.end() && trace_->first == key) return trace_->second;
  trace_ = traces_.find(key);
  if (trace_ == traces_.end()) trace_ = traces_.emplace(key, states_of_units(shape, data)).first;
  return trace_->second;
}

const StateCosts& CostTable::state_of(const DataOrder& at) {
  const auto& [shape, data, order, placement] = at;
  const StateKey key = {key_of(shape, data), shape.pp, shape.ranks_per_node, order, placement};
  const auto found = states_.find(key);
  if (found != states_.end()) return found->second;
  const std::vector<AxisOrder>& orders = orders_.of(shape, data, placement);
  StateCosts costs = order ? costs_of_state(shape, data, *order) : state(shape, data, orders.front());
  if (!order)
    for (std::size_t i = 1; i < orders.size(); ++i) costs = least_of(costs, state(shape, data, orders[i]));
  return states_.emplace(key, costs).first->second;
}

UnitStates CostTable::states_of_units(const PlanShape& shape, const PlanData& data) {
  RunConfig config = space_->config_of({shape, {}, {}, data});
  config.parallelism.pipeline_parallel_degree = 2;  // the ends have a copy of a tied weight each
  UnitTraces traces(config);
  const ContextRanks context_ranks(config);
  UnitStates states;
  states.converts_gradients = shard_options(config).converts_gradients();
  const auto add = [&](const UnitKind& kind) {
    Coordinates coordinates{};
    coordinates[static_cast<std::size_t>(Axis::pp)] = kind.is_head_copy ? 1 : 0;
    const int rank = context_ranks.busiest_like(config.mesh_shape().rank_of(coordinates), config.mesh_shape()),
              index = kind.role == UnitKind::Role::tied_weight ? 1 : 0;
    ModelPart part = make_unit_part(config, rank, kind);
    part.options.model = config.model;  // constants are of all kinds of layers
    const ShardedUnit& unit = unit_of(part, kind);
    UnitState& state = states.units.emplace_back(UnitState{.kind = kind, .sums_replicas = unit.sums_replicas()});
    for (const auto& [action, trace] : traces.state(kind, rank)) state.costs[action] = timer_.cost_of(trace);
    states.constant_bytes = 0;
    for (const PlannedBuffer& buffer : persistent_buffers(part, 0)) {
      if (buffer.key.role > BufferRole::v)
        states.constant_bytes += buffer.num_bytes;
      else if (buffer.key.index == index)
        state.persistent_bytes += buffer.num_bytes;
    }
    state.snapshot_bytes = snapshot_bytes(part, index, config);
    const auto bytes_of = [&](BufferRole role, bool is_owned = false) {
      std::int64_t sum = 0;
      for (const Bucket& bucket : unit.buckets()) sum += bucket_bytes(role, is_owned, bucket, unit.options());
      return sum;
    };
    state.whole_param_bytes = bytes_of(BufferRole::gathered_param);
    state.whole_grad_bytes = bytes_of(BufferRole::unreduced_grad);
    state.converted_grad_bytes = bytes_of(BufferRole::converted_grad);
    state.converted_part_bytes = bytes_of(BufferRole::converted_grad, true);
  };
  using Role = UnitKind::Role;
  for (const Role role : {Role::embedding, Role::head}) add({.role = role});
  for (const bool has_experts : {false, true}) {
    const std::vector<LayerKind> kinds = config.model.layer_kinds();
    if (std::ranges::none_of(kinds, [&](const LayerKind& kind) { return kind.has_experts == has_experts; })) continue;
    const bool is_first = states.units.size() == 2;
    add({.role = Role::block, .layer = {.has_experts = has_experts}});
    states.least_block = is_first ? states.units.back() : least_of(states.least_block, states.units.back());
  }
  if (config.model.tie_word_embeddings) {
    for (const bool is_overwritten_by_first_matmul : {false, true})
      add({.role = Role::tied_weight, .is_overwritten_by_first_matmul = is_overwritten_by_first_matmul});
    add({.role = Role::tied_weight, .has_copy = true, .is_head_copy = true, .is_overwritten_by_first_matmul = true});
    add({.role = Role::tied_weight, .has_copy = true});
  }
  return states;
}

StateCosts CostTable::costs_of_state(const PlanShape& shape, const PlanData& data, const AxisOrder& order) {
  const MeshShape mesh = space_->mesh_of(shape, data, order);
  StateCosts costs;
  costs.traces = &traces(shape, data);
  const auto seconds_of = [&](const UnitState& unit) {
    const auto of = [&](ActionKind kind) {
      const auto found = unit.costs.find(kind);
      return found == unit.costs.end() ? 0.0 : timer_.seconds(found->second, mesh);
    };
    return UnitSeconds{.reduce = reduces_gradients(shape, data) ? of(ActionKind::reduce_gradients) : 0,
                       .reduce_parts = of(ActionKind::reduce_parts),
                       .gather = of(ActionKind::gather_parameters),
                       .update = of(ActionKind::update),
                       .clear = of(ActionKind::clear_gradients),
                       .squares = of(ActionKind::clip)};
  };
  costs.embedding = seconds_of(costs.traces->embedding());
  bool is_first = true;
  costs.traces->for_blocks([&](const UnitState& block) {
    const UnitSeconds seconds = seconds_of(block);
    costs.block = is_first ? seconds : least_of(costs.block, seconds);
    is_first = false;
    (block.kind.layer.has_experts ? costs.mixture : costs.dense) = seconds;
  });
  costs.head = seconds_of(costs.traces->head());
  if (const UnitState* const tied_weight = costs.traces->tied_weight()) costs.tied_weight = seconds_of(*tied_weight);
  const CommRecord scalar = {.kind = CommKind::all_reduce,
                             .group = step_group,
                             .group_size = mesh.num_ranks(),
                             .dtype = DType::float64,
                             .num_elements = 1};
  costs.scalar_seconds = timer_.seconds({.events = {scalar}}, mesh);
  return costs;
}

}  // namespace echelon
