#include "plan/bounds/unit_costs.h"

#include "base/error.h"
#include "blueprint/lifetimes.h"
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

/// Of shapes that divide experts in different ways the same.
PlanShape without_experts(PlanShape shape) {
  shape.ep = shape.etp = 1;
  shape.divides_experts_as_dense = false;
  shape.ranks_per_node = 0;
  shape.dispatch_bound = 0;
  return shape;
}

template <class Unit>
const Unit& of_kind(const std::vector<Unit>& units, const UnitKind& kind) {
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.kind == kind; });
  if (found == units.end()) throw Failure("the cost of an unknown kind of unit is asked for");
  return *found;
}

}  // namespace

const UnitCost& LayerCosts::of(const UnitKind& kind) const { return of_kind(units, kind); }
const UnitState& UnitStates::of(const UnitKind& kind) const { return of_kind(units, kind_of_state(kind)); }

CostTable::CostTable(const PlanSpace& space, const PlanRequest& request, KnownPasses* known)
    : space_(&space),
      request_(&request),
      timer_(request.machine, request.num_devices),
      orders_(space, request),
      passes_(known != nullptr && !request.machine.host ? known : &own_passes_) {}

CostTable::LayersOfPlacements& CostTable::known_layers(const PlanShape& shape, const BlockOperations& recomputed) {
  const ShapeKey key = key_of(shape);
  if (shape_ == layers_.end() || shape_->first != key) shape_ = layers_.try_emplace(key).first;
  const auto found = shape_->second.find(recomputed);
  if (found != shape_->second.end()) return found->second;
  return shape_->second.emplace(recomputed, LayersOfPlacements{traced_layers(shape, recomputed)}).first->second;
}

const LayerCosts& CostTable::layers(const PlanShape& shape, const BlockOperations& recomputed) {
  return known_layers(shape, recomputed).closest;
}

const LayerCosts& CostTable::layers(const PlanShape& shape, const BlockOperations& recomputed, const MeshShape& mesh) {
  auto& [closest, known] = known_layers(shape, recomputed);
  if (shape.tp * shape.cp * num_expert_ranks(shape) == 1 || request_->machine.host) return closest;
  const std::array strides = {mesh.stride(Axis::tp), mesh.stride(Axis::cp),
                              num_expert_ranks(shape) > 1 ? mesh.stride(Axis::dp_shard) : 0};
  const auto found = std::ranges::find(known, strides, &PlacedLayers::value_type::first);
  if (found != known.end()) return *found->second;
  LayerCosts placed = closest;
  bool is_slower = false;
  for (UnitCost& unit : placed.units) {
    std::array<double, num_pass_kinds> seconds{};
    seconds.fill(no_time);
    timer_.take_least(unit.costs->first, mesh, seconds);
    for (std::size_t kind = 0; kind < num_pass_kinds; ++kind)
      is_slower = is_slower || seconds[kind] > unit.seconds[kind];
    unit.seconds = seconds;
  }
  known.emplace_back(strides, is_slower ? &slower_layers_.emplace_back(std::move(placed)) : &closest);
  return *known.back().second;
}

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

ActionCost CostTable::cost_of_pass(const CallTrace& trace, const DocumentAttention* documents) {
  constexpr Action any_pass = {.kind = ActionKind::forward};
  return documents == nullptr ? timer_.cost_of(trace)
                              : timer_.cost_of(rewritten(documents->profile, documents->config, any_pass, trace));
}

std::shared_ptr<const PassCosts> CostTable::costs_of(const UnitKind& kind, ShapeTracer& tracer) {
  auto costs = std::make_shared<PassCosts>();
  costs->bytes = tracer.tell_passes(kind, [&](PassKind pass, bool is_first, const CallTrace& trace) {
    (is_first ? costs->first : costs->later)[static_cast<std::size_t>(pass)] = cost_of_pass(trace, tracer.documents());
  });
  return costs;
}

UnitCost CostTable::timed(const UnitKind& kind, std::shared_ptr<const PassCosts> costs, const PlanShape& shape) {
  UnitCost cost = {.kind = kind, .costs = std::move(costs)};
  cost.seconds.fill(no_time);
  for (const MeshShape& mesh : orders_.of_layer_axes(shape)) timer_.take_least(cost.costs->first, mesh, cost.seconds);
  return cost;
}

TiedWeight CostTable::tied_weight() const {
  return request_->base.model.tie_word_embeddings ? TiedWeight::of_two_ranks : TiedWeight::none;
}

/// The kinds of units of a model whose blocks recompute nothing, or these operations.
template <class Visit>
void CostTable::for_kinds(const BlockOperations& recomputed, const Visit& visit) const {
  using Role = UnitKind::Role;
  visit(UnitKind{.role = Role::embedding});
  for (const LayerKind& layer : request_->base.model.layer_kinds()) {
    visit(UnitKind{.role = Role::block, .layer = layer});
    if (!recomputed.empty()) visit(UnitKind{.role = Role::block, .recompute = recomputed, .layer = layer});
  }
  visit(UnitKind{.role = Role::head});
  if (tied_weight() != TiedWeight::none) visit(UnitKind{.role = Role::head, .is_overwritten_by_first_matmul = true});
}

/// Whether a rank of context parallelism has as many whole tokens of a sequence as any other, without a rest.
bool CostTable::has_even_tokens(const PlanShape& shape) const {
  constexpr std::int64_t rounding = 16;
  return shape.cp == 1 || request_->base.training.seq_len % (shape.cp * shape.tp * rounding) == 0;
}

/// Only what the unit's passes depend on: of a head, how many tokens a rank has.
PassDegrees CostTable::pass_degrees(const UnitKind& kind, const PlanShape& shape) const {
  const bool is_block = kind.role == UnitKind::Role::block;
  PlanShape of_unit = is_block && kind.layer.has_experts ? shape : without_experts(shape);
  if (!is_block) of_unit.exchange = {};
  if (!is_block) of_unit.dp = 0;
  if (kind.role == UnitKind::Role::head && has_even_tokens(shape)) {
    of_unit.micro_batch_size *= request_->base.training.seq_len / shape.cp;
    of_unit.cp = 1;
  }
  return key_of(of_unit);
}

ShapeTracer& CostTable::tracer_of(const PlanShape& shape) {
  const ShapeKey key = key_of(shape);
  if (!tracer_ || traced_shape_ != key) {
    tracer_.emplace(*space_, shape, request_->documents.get());
    traced_shape_ = key;
  }
  return *tracer_;
}

LayerCosts CostTable::traced_layers(const PlanShape& shape, const BlockOperations& recomputed) {
  ShapeTracer& tracer = tracer_of(shape);
  KnownUnits& units = units_[key_of(shape)];
  const LayerOptions options = layer_options(tracer.config(), 0);
  const std::int64_t boundary_elements = options.num_local_tokens() * options.model.hidden_size;
  LayerCosts costs = {.model = &request_->base.model,
                      .tied = tied_weight(),
                      .boundary_bytes = aligned(boundary_elements * size_of(options.dtype)),
                      .boundary_elements = boundary_elements};
  ModelPart part;
  part.options = options;
  for (const BufferRole role : batch_roles) costs.batch_elements.push_back(part.batch_size(role));
  for_kinds(recomputed, [&](const UnitKind& kind) {
    const auto [cost, is_new] = units.try_emplace(kind);
    if (is_new) {
      std::shared_ptr<const PassCosts>& known = passes_->all[{pass_degrees(kind, shape), kind}];
      if (known == nullptr) known = costs_of(kind, tracer);
      cost->second = timed(kind, known, shape);
    }
    costs.units.push_back(cost->second);
  });
  return costs;
}

std::shared_ptr<const PassCosts> CostTable::first_costs(const UnitKind& kind, const PlanShape& shape,
                                                        ShapeTracer& tracer) {
  const std::pair key(pass_degrees(kind, shape), kind);
  const auto all = passes_->all.find(key);
  if (all != passes_->all.end()) return all->second;
  std::shared_ptr<const PassCosts>& known = passes_->first[key];
  if (known != nullptr) return known;
  auto costs = std::make_shared<PassCosts>();
  tracer.tell_first_passes(kind, [&](PassKind pass, bool /*is_first*/, const CallTrace& trace) {
    costs->first[static_cast<std::size_t>(pass)] = cost_of_pass(trace, tracer.documents());
  });
  return known = std::move(costs);
}

const LayerCosts& CostTable::first_layers(const PlanShape& shape) {
  if (request_->machine.host) return layers(shape, {});
  const auto [known, is_new] = first_layers_.try_emplace(key_of(shape));
  LayerCosts& costs = known->second;
  if (!is_new) return costs;
  costs.model = &request_->base.model;
  costs.tied = tied_weight();
  ShapeTracer& tracer = tracer_of(shape);
  for_kinds({},
            [&](const UnitKind& kind) { costs.units.push_back(timed(kind, first_costs(kind, shape, tracer), shape)); });
  return costs;
}

/// A rank of context parallelism computes at least what it would with its part of a sequence alone, and the attention
/// of as many pairs (query, key) as ranks have on average, in one call.
std::shared_ptr<const PassCosts> CostTable::unexchanged_costs(const UnitKind& kind, const PlanShape& shape,
                                                              ShapeTracer& tracer) {
  PlanShape of_any = shape;
  of_any.exchange = {};
  std::shared_ptr<const PassCosts>& known = passes_->unexchanged[{pass_degrees(kind, of_any), kind}];
  if (known != nullptr) return known;
  const std::int64_t seq_len = request_->base.training.seq_len, cp = shape.cp;
  const double more_pairs = static_cast<double>(seq_len + 1) / static_cast<double>(seq_len / cp + 1);
  auto costs = std::make_shared<PassCosts>();
  tracer.tell_first_passes(kind, [&](PassKind pass, bool /*is_first*/, CallTrace& trace) {
    for (TraceEvent& event : trace.events) {
      auto* const operation = std::get_if<OpRecord>(&event);
      const bool is_attention = operation != nullptr &&
                                (operation->kind == OpKind::attention || operation->kind == OpKind::attention_backward);
      if (!is_attention || kind.layer.window > 0) continue;  // a window has about as many pairs in any part
      operation->flops = static_cast<std::int64_t>(more_pairs * static_cast<double>(operation->flops));
      operation->n *= cp * cp;  // of whole sequences
    }
    costs->first[static_cast<std::size_t>(pass)] = cost_of_pass(trace, nullptr);
  });
  return known = std::move(costs);
}

const LayerCosts* CostTable::unexchanged_layers(const PlanShape& shape) {
  const bool is_known = shape.cp > 1 && has_even_tokens(shape) && num_expert_ranks(shape) == 1 &&
                        !request_->base.model.mixture.exists() && !request_->machine.host &&
                        request_->documents == nullptr;
  if (!is_known) return nullptr;
  PlanShape of_any = shape;
  of_any.exchange = {};
  const auto [known, is_new] = unexchanged_layers_.try_emplace(key_of(of_any));
  LayerCosts& costs = known->second;
  if (!is_new) return &costs;
  costs.model = &request_->base.model;
  costs.tied = tied_weight();
  PlanShape alone = of_any;
  alone.cp = 1;
  alone.dp *= shape.cp;
  ShapeTracer tracer(*space_, alone, nullptr, request_->base.training.seq_len / shape.cp);
  for_kinds({}, [&](const UnitKind& kind) {
    costs.units.push_back(timed(kind, unexchanged_costs(kind, shape, tracer), alone));
  });
  return &costs;
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

double CostTable::transfer_seconds(const PlanShape& shape, const MeshShape& mesh) {
  if (shape.pp == 1) return 0;
  const std::int64_t num_elements = layers(shape, {}).boundary_elements;
  const auto [known, is_new] = transfers_.try_emplace({mesh.stride(Axis::pp), num_elements}, 0);
  const CommRecord transfer = {.kind = CommKind::send,
                               .group = pipeline_group,
                               .group_size = static_cast<int>(shape.pp),
                               .dtype = request_->base.training.dtype,
                               .num_elements = num_elements,
                               .peer = 1};
  if (is_new) known->second = timer_.seconds({.events = {transfer}}, mesh);
  return known->second;
}

}  // namespace echelon
