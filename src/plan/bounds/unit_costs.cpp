#include "plan/bounds/unit_costs.h"

#include "base/error.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

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
  const std::int64_t seq_len = request_->base.training.seq_len, cp = shape.cp, num_own = seq_len / cp;
  const double more_pairs = static_cast<double>(seq_len + 1) / static_cast<double>(num_own + 1);
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
                        !request_->base.model.has_experts() && !request_->machine.host &&
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
