#include "plan/search/tree.h"

#include "nn/head_split.h"
#include "plan/search/expert_choices.h"
#include "predict/machine/device_memory.h"

#include <algorithm>

namespace echelon {
namespace {

/// A search of little work simulates few programs beforehand.
std::int64_t play_budget_of(const PlanRequest& request) {
  constexpr std::int64_t most = 500'000, share = 100;
  return request.work > 0 ? std::min(most, request.work / share) : most;
}

}  // namespace

PlanTree::PlanTree(PlanTables& tables, bool must_fit)
    : request_(tables.request),
      must_fit_(must_fit),
      space_(tables.space),
      bounds_(tables.bounds),
      steps_(tables.steps),
      device_bytes_(most_arena_bytes({})),
      keys_(space_, bounds_, must_fit ? device_bytes_ : PlanBounds::any_bytes, memory_first()),
      play_budget_(play_budget_of(request_)) {}

PlanHeap PlanTree::roots() {
  PlanHeap open;
  if (!may_fit(bounds_.bytes().of_any_layout())) return open;
  for (const PlanShape& shape : space_.shapes()) {
    // A trace of passes takes much longer than one of states, so only those shapes get one that may fit.
    const bool has_bytes = memory_first() || must_fit_;
    const std::int64_t bytes = has_bytes ? bounds_.bytes().of_any_pipeline(shape) : 0;
    if (!may_fit(bytes)) continue;
    if (memory_first()) {
      open.push({key({0, bytes}), PlanGrade::shape, {.shape = shape}});
    } else if (const std::optional<double> least = bounds_.unexchanged_seconds(shape)) {
      open.push({key({*least, 0}), PlanGrade::unexchanged_shape, {.shape = shape}});
    } else {
      open.push({key({bounds_.shape_seconds(shape), 0}), PlanGrade::shape, {.shape = shape}});
    }
  }
  return open;
}

void PlanTree::expand(const PlanNode& node, PlanHeap& open) {
  if (node.grade != PlanGrade::parts) counts_.work += work_of_set;  // their bounds are known
  switch (node.grade) {
    case PlanGrade::unexchanged_shape: return bound_shape(node, open);
    case PlanGrade::shape: return expand_shape(node.choice.shape, open);
    case PlanGrade::parts: return expand_parts(node, open);
    case PlanGrade::pipeline: return fit_pipeline(node, open);
    case PlanGrade::fitting: return clock_pipeline(node, open);
    case PlanGrade::clocked: return expand_pipeline(node, open);
    case PlanGrade::any_order: return clock_any_order(node, open);
    case PlanGrade::clocked_any_order: return expand_orders(node, open);
    case PlanGrade::layout: return step(node, open);
    case PlanGrade::stepped: return time(node);
    case PlanGrade::timed: return;
  }
}

/// In its turn: those with the same key come out in the order of shapes.
void PlanTree::bound_shape(PlanNode node, PlanHeap& open) {
  node.key.first = std::max(node.key.first, bounds_.shape_seconds(node.choice.shape));
  node.grade = PlanGrade::shape;
  open.push_in_turn(std::move(node));
}

void PlanTree::bound_shapes(PlanHeap& open) {
  PlanHeap shapes =
      open.extract([](const PlanHeap::Entry& each) { return each.grade() == PlanGrade::unexchanged_shape; });
  while (!shapes.empty()) bound_shape(std::move(*shapes.pop()), open);
}

void PlanTree::expand_shape(const PlanShape& shape, PlanHeap& open) {
  PipelineParts parts(keys_, shape, 0);
  for (const PipelinePart& part : parts.find_all()) open.push(node_of(shape, part));
}

void PlanTree::expand_first(PlanHeap& open) {
  const std::unique_ptr<PlanNode> first = open.pop();
  first->grade == PlanGrade::shape ? expand_to_parts(*first, open) : expand(*first, open);
}

void PlanTree::expand_to_parts(const PlanNode& shape, PlanHeap& open) {
  counts_.work += work_of_set;
  const std::int64_t turn = open.take_turns(PipelineParts::num_turns(keys_, shape.choice.shape));
  push_parts({.grade = PlanGrade::parts,
              .choice = shape.choice,
              .parts = std::make_shared<PipelineParts>(keys_, shape.choice.shape, turn)},
             open);
}

/// In the place of the first one that is left.
void PlanTree::push_parts(PlanNode node, PlanHeap& open) {
  if (node.parts->empty()) return;
  node.key = node.parts->key();
  node.turn = node.parts->turn();
  open.push_in_turn(std::move(node));
}

bool PlanTree::bound_first(PlanHeap& open) {
  if (open.empty()) return false;
  if (open.top().grade() == PlanGrade::unexchanged_shape) {
    bound_shape(std::move(*open.pop()), open);
    return true;
  }
  if (open.top().grade() != PlanGrade::parts || open.top().pushed().parts->is_first_known()) return false;
  std::unique_ptr<PlanNode> node = open.pop();
  node->parts->find_first(open.empty() ? no_time : open.top().key.first);
  push_parts(std::move(*node), open);
  return true;
}

void PlanTree::separate_parts(PlanHeap& open) {
  together_.push_back(open.extract([](const PlanHeap::Entry& each) { return each.grade() == PlanGrade::parts; }));
  for (const PlanHeap::Entry& each : together_.back().entries())
    for (const PipelinePart& part : each.pushed().parts->find_all()) open.push(PlanHeap::Entry(each.shape(), part));
}

void PlanTree::expand_parts(const PlanNode& node, PlanHeap& open) {
  open.push_in_turn(node_of(node.choice.shape, node.parts->take_first()));
  push_parts(node, open);
}

/// The layouts with the recomputations of a chain.
void PlanTree::push_pipeline(PlanNode node, PlanHeap& open) {
  node.grade = PlanGrade::pipeline;
  node.choice.recompute = node.chain.front();
  node.key = keys_.of(node.choice.shape, node.choice.pipeline, node.chain, node.placement);
  open.push(std::move(node));
}

void PlanTree::add_expert_choices(const PlanShape& shape, PlanHeap& seeds) {
  const auto fits = [&](const PlanChoice& choice) { return may_fit(choice, bounds_.bytes().of_layout(choice)); };
  PlanOrders& orders = bounds_.costs().orders();
  for (const PlanChoice& choice : expert_choices(space_, shape, fits)) {
    counts_.work += work_of_set;
    for (const TensorPlacement placement : orders.placements(shape)) {
      const std::vector<AxisOrder>& of_placement = orders.of(shape, choice.data, placement);
      if (of_placement.empty() || of_placement.front() != choice.order) continue;
      const double seconds = bounds_.unclocked_seconds(choice, placement);
      seeds.push({.key = key({seconds, bounds_.bytes().of_layout(choice)}),
                  .grade = PlanGrade::any_order,
                  .choice = choice,
                  .placement = placement});
    }
  }
}

PlanKey PlanTree::key(const Bound& bound) const {
  const auto bytes = static_cast<double>(bound.bytes);
  return memory_first() ? PlanKey{bytes, bound.seconds} : PlanKey{bound.seconds, bytes};
}

PlanNode PlanTree::layout_node(PlanGrade grade, const PlanChoice& choice, const Bound& bound) const {
  PlanNode node = {key(bound), grade, choice};
  const std::vector<AxisOrder>& orders = space_.orders(choice.shape, choice.data);
  node.key.order = std::find(orders.begin(), orders.end(), choice.order) - orders.begin();
  return node;
}

std::int64_t PlanTree::most_arena_bytes(const Communicators& communicators) const {
  std::int64_t most = 0;
  for (const NodeSpec& node : request_.machine.nodes)
    most = std::max(most, arena_limit_bytes(node.device, communicators));
  return most;
}

bool PlanTree::may_fit(const PlanChoice& choice, std::int64_t bytes) const {
  return !must_fit_ || (bytes <= device_bytes_ && bytes <= most_arena_bytes(choice.shape, choice.data));
}

std::vector<PlanTree::PlacedData>& PlanTree::data_of(const PlanShape& shape, TensorPlacement placement) {
  const auto [known, is_new] = data_.try_emplace({shape, placement});
  if (!is_new) return known->second;
  const std::vector<PlanData>& all = space_.data_layouts(shape);
  for (const PlanData& data : all)
    if (!bounds_.costs().orders().of(shape, data, placement).empty())
      known->second.push_back({.data = data,
                               .place = &data - all.data(),
                               .traces = &bounds_.costs().traces(shape, data),
                               .most_bytes = must_fit_ ? most_arena_bytes(shape, data) : 0});
  return known->second;
}

const StateCosts& PlanTree::state_of(const PlanShape& shape, PlacedData& data, TensorPlacement placement) {
  if (data.state == nullptr) data.state = &bounds_.costs().state(shape, data.data, placement);
  return *data.state;
}

/// How many groups the ranks of a mesh have does not depend on its order.
std::int64_t PlanTree::most_arena_bytes(const PlanShape& shape, const PlanData& data) const {
  PartialGroups parts =
      partial_groups(request_.base.model, static_cast<int>(shape.tp), static_cast<int>(shape.cp), shape.exchange);
  parts.expert_ranks = static_cast<int>(num_expert_ranks(shape));
  parts.feature_ranks = static_cast<int>(inner_expert_ranks(shape));
  return most_arena_bytes(communicators_of(space_.mesh_of(shape, data, {}), parts));
}

}  // namespace echelon
