// From a pipeline's set to its timed layouts.
#include "plan/search/tree.h"

#include <algorithm>

namespace echelon {
namespace {

// What a pass of a schedule, an action of a program and of a blueprint cost.
constexpr std::int64_t work_of_pass = 1, work_of_action = 1, work_of_lowered_action = 6, work_of_blueprint_action = 20,
                       work_of_blueprint_pass = 40,
                       work_of_blueprint_rank = 1100;  // where nodes differ every rank has its own
// Programs are simulated for many layouts if they are so short, in passes of units, once so much was done for some.
constexpr std::int64_t most_played_passes = 1024, work_of_look = 100, work_of_unit_pass = 10;

/// Forward and backward passes of all pipeline ranks.
std::int64_t num_passes(const PlanChoice& choice) {
  return 2 * choice.shape.pp * choice.pipeline.num_virtual * choice.shape.num_microbatches;
}

}  // namespace

/// Once the schedule says that the first one of a chain fits, bounds it by the data axes with which any of them may.
void PlanTree::fit_pipeline(const PlanNode& node, PlanHeap& open) {
  if (memory_first()) return expand_pipeline(node, open);
  const auto fits = [&](const PlanRecompute& each) {
    return may_fit(bounds_.bytes().of_pipeline({node.choice.shape, node.choice.pipeline, each}, device_bytes_));
  };
  if (must_fit_ && !fits(node.chain.front())) {
    PlanNode rest = node;
    rest.chain = from_first_fitting(rest.chain, fits);
    if (!rest.chain.empty()) push_pipeline(std::move(rest), open);
    return;
  }
  const PlanShape& shape = node.choice.shape;
  const auto num_data = std::ssize(space_.data_layouts(shape));
  // The clock is quicker than a look at all data axes where there are few passes, unless their programs were simulated.
  if (work_of_pass * num_passes(node.choice) < 2 * work_of_set * num_data && !played_.contains(node.pipeline))
    return clock_pipeline(node, open);
  PlanNode fitting = node;
  fitting.grade = PlanGrade::fitting;
  fitting.key.first = no_time;
  PlanChoice choice = node.choice, least = node.choice;
  least.recompute = node.chain.back();
  const PlanBounds::Placed placed = bounds_.placed({shape, choice.pipeline, choice.recompute}, node.placement);
  std::int64_t num_tried = num_data;
  for (PlacedData& each : data_of(shape, node.placement)) {
    choice.data = least.data = each.data;
    const double seconds = std::max({node.key.first, each.played_seconds(node.pipeline),
                                     bounds_.unclocked_seconds(choice, placed, state_of(shape, each, node.placement))});
    if (seconds < fitting.key.first && may_fit(bounds_.bytes().of_layout(least, *each.traces), each.most_bytes))
      fitting.key.first = seconds;
    if (fitting.key.first == node.key.first) {
      num_tried = each.place + 1;
      break;
    }
  }
  counts_.work += work_of_set * num_tried;
  if (fitting.key.first < no_time) open.push(std::move(fitting));
}

/// Bounds the first one of a chain better by its schedule.
void PlanTree::clock_pipeline(const PlanNode& node, PlanHeap& open) {
  ++counts_.num_played;
  counts_.work += work_of_pass * num_passes(node.choice);
  PlanNode clocked = node;
  clocked.grade = PlanGrade::clocked;
  const PlanComputation computation = {node.choice.shape, node.choice.pipeline, node.choice.recompute};
  clocked.key.first = std::max(node.key.first, bounds_.clocked_pipeline_seconds(computation, node.placement));
  open.push(std::move(clocked));
}

/// The first layouts of a chain, one for each data-parallel configuration; the rest of the chain stays a node. Where
/// memory comes first those are the last ones, which keep least.
void PlanTree::expand_pipeline(const PlanNode& node, PlanHeap& open) {
  PlanChoice choice = node.choice;
  choice.recompute = memory_first() ? node.chain.back() : node.chain.front();
  if (!must_fit_) counts_.work += work_of_pass * num_passes(choice);  // that are followed for the bytes of its layouts
  const PlanComputation computation = {choice.shape, choice.pipeline, choice.recompute};
  if (!must_fit_ || may_fit(bounds_.bytes().of_pipeline(computation, device_bytes_))) expand_data(node, choice, open);
  if (node.chain.size() == 1) return;
  PlanNode rest = node;
  rest.chain = memory_first() ? rest.chain.first(rest.chain.size() - 1) : rest.chain.subspan(1);
  push_pipeline(std::move(rest), open);
}

void PlanTree::expand_data(const PlanNode& node, PlanChoice choice, PlanHeap& open) {
  const TensorPlacement placement = node.placement;
  const PlanBounds::Placed placed = bounds_.placed({choice.shape, choice.pipeline, choice.recompute}, placement);
  for (PlacedData& each : data_of(choice.shape, placement)) {
    choice.data = each.data;
    const std::int64_t bytes = bounds_.bytes().of_layout(choice, *each.traces);
    if (!may_fit(bytes, each.most_bytes)) continue;
    const double played = each.played_seconds(node.pipeline),
                 seconds = std::max(played, bounds_.seconds_of_any_order(
                                                choice, placed, state_of(choice.shape, each, placement), false));
    if (played == seconds) play_budget_ += work_of_look + work_of_pass * num_passes(choice);
    open.push({.key = key({seconds, bytes}),
               .grade = PlanGrade::any_order,
               .choice = choice,
               .placement = placement,
               .pipeline = node.pipeline});
  }
}

/// Programs without recomputation are simulated once for all layouts that differ in that alone: the others take no
/// less. Not before so many of them came out that it is likely to be worth it, and as long as that raises bounds.
double PlanTree::played_seconds(const PlanNode& node) {
  const PlanShape& shape = node.choice.shape;
  const std::int64_t num_unit_passes = shape.num_microbatches * (request_.base.model.num_hidden_layers + 2);
  const bool may_play = request_.machine.nodes.size() == 1 && !request_.machine.host && node.pipeline != nullptr;
  if (memory_first() || !may_play || num_unit_passes > most_played_passes) return 0;
  if (keys_.chains(*node.pipeline).front().front() != PlanRecompute()) return 0;
  std::vector<PlacedData>& all = data_of(shape, node.placement);
  PlacedData::Played& played = std::ranges::find(all, node.choice.data, &PlacedData::data)->played[node.pipeline];
  if (played.is_known) return played.least;
  played.work_without += work_of_look + work_of_pass * num_passes(node.choice);
  if (play_budget_ < 0 || played.work_without < work_of_unit_pass * num_unit_passes) return 0;
  played_.insert(node.pipeline);
  played.is_known = true;
  played.least = no_time;
  PlanChoice choice = node.choice;
  choice.recompute = {};
  for (const AxisOrder& order : bounds_.costs().orders().of(shape, choice.data, node.placement)) {
    choice.order = order;
    const std::optional<LayoutStep> step = steps_.play(choice);
    if (!step) return played.least = 0;
    ++counts_.num_stepped;
    const std::int64_t work = work_of_action * step->num_actions + work_of_lowered_action * step->num_lowered;
    counts_.work += work;
    play_budget_ -= work;
    played.of_orders.push_back(rounding_of_bounds * step->seconds);
    played.least = std::min(played.least, played.of_orders.back());
  }
  return played.least;
}

/// What is known of them.
std::vector<double> PlanTree::played_in_orders(const PlanNode& node) {
  if (node.pipeline == nullptr) return {};
  std::vector<PlacedData>& all = data_of(node.choice.shape, node.placement);
  const PlacedData& data = *std::ranges::find(all, node.choice.data, &PlacedData::data);
  const auto known = data.played.find(node.pipeline);
  return known == data.played.end() ? std::vector<double>() : known->second.of_orders;
}

/// From ZeRO-2 on passes and data axes slow each other down.
void PlanTree::clock_any_order(const PlanNode& node, PlanHeap& open) {
  if (const double played = played_seconds(node); played > node.key.first) {
    PlanNode later = node;
    later.grade = PlanGrade::clocked_any_order;
    later.key.first = played;
    return open.push(std::move(later));
  } else if (played > 0 && played == node.key.first) {  // it is as good as a clock
    return expand_orders(node, open);
  }
  const auto& [shape, pipeline, recompute, data, order] = node.choice;
  const bool has_lane = num_shards(shape, data) > 1 && data.zero_level > 1;
  if (!has_lane || memory_first() || bounds_.costs().orders().of(shape, data, node.placement).size() == 1)
    return expand_orders(node, open);
  ++counts_.num_played;
  counts_.work += work_of_pass * num_passes(node.choice);
  PlanNode clocked = node;
  clocked.grade = PlanGrade::clocked_any_order;
  clocked.key.first = std::max(node.key.first, bounds_.seconds_of_any_order(node.choice, node.placement, true));
  open.push(std::move(clocked));
}

/// One of each kind of orders that the machine can tell apart.
void PlanTree::expand_orders(const PlanNode& node, PlanHeap& open) {
  PlanChoice choice = node.choice;
  const std::vector<AxisOrder>& orders = bounds_.costs().orders().of(choice.shape, choice.data, node.placement);
  const std::vector<double> played = memory_first() ? std::vector<double>() : played_in_orders(node);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    choice.order = orders[i];
    add_layout(choice, open, memory_first() ? 0 : std::max(node.key.first, i < played.size() ? played[i] : 0));
  }
}

void PlanTree::add_layout(const PlanChoice& choice, PlanHeap& open, double least_seconds) {
  ++counts_.num_played;
  counts_.work += work_of_pass * num_passes(choice);
  open.push(layout_node(PlanGrade::layout, choice,
                        {std::max(least_seconds, bounds_.seconds(choice)), bounds_.bytes().of_layout(choice)}));
}

void PlanTree::step(const PlanNode& layout, PlanHeap& open) {
  const std::optional<LayoutStep> step = steps_.play(layout.choice);
  if (!step) return time(layout);
  counts_.work += work_of_action * step->num_actions + work_of_lowered_action * step->num_lowered;
  ++counts_.num_stepped;
  if (!may_fit(layout.choice, step->live_bytes)) return;
  const double seconds = step->is_exact ? comparable(step->seconds) : rounding_of_bounds * step->seconds;
  PlanNode stepped = layout_node(PlanGrade::stepped, layout.choice, {seconds, step->live_bytes});
  stepped.num_actions = step->num_actions;
  open.push(std::move(stepped));
}

void PlanTree::time(const PlanNode& layout) {
  ++counts_.num_evaluated;
  counts_.work += layout.num_actions > 0 ? work_of_blueprint_action * layout.num_actions
                                         : work_of_blueprint_pass * num_passes(layout.choice) +
                                               work_of_blueprint_rank * request_.num_devices;
  Plan plan = evaluate(request_, layout.choice);
  if (must_fit_ && !plan.outcome.fits()) return;
  PlanNode timed = layout_node(PlanGrade::timed, layout.choice,
                               {comparable(plan.outcome.step_seconds), plan.outcome.peak_memory_bytes()});
  timed.plan = num_timed();
  plans_.push_back(std::move(plan));
  timed_.push(std::move(timed));
}

void PlanTree::add_orders(const PlanChoice& choice, PlanHeap& open) {
  PlanChoice other = choice;
  for (const AxisOrder& order : bounds_.costs().orders().of(choice.shape, choice.data)) {
    other.order = order;
    if (!(other == choice)) add_layout(other, open);
  }
}

}  // namespace echelon
