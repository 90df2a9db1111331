// What all pipelines of a shape take at least whose blocks recompute the same operations. Ranks together hold the model
// once: what they hold too much without recomputation, recomputed blocks must free, and each of them takes longer.
//
// A microbatch's activations of a unit are held while it goes through all later units and back. So a step needs memory
// for some time: over units and microbatches, the bytes of a unit times the seconds from it to the last one and back.
// In a step of T seconds, p ranks have no more than p T times the bytes that are free on one.
#include "plan/bounds/bounds.h"

#include <algorithm>

namespace echelon {
namespace {

double forward_seconds(const UnitCost& unit) { return unit.seconds[static_cast<std::size_t>(PassKind::forward)]; }

double least_pass_seconds(const UnitCost& unit) {
  return forward_seconds(unit) + least_backward(unit.seconds, BackwardKinds::both);
}

/// Of a microbatch through the unit and back.
double way_of(const UnitCost& unit) {
  return forward_seconds(unit) + least_backward_input(unit.seconds, BackwardKinds::both);
}

std::int64_t kept_bytes(const UnitCost& unit) {
  return unit.costs->bytes.stash.num_bytes + unit.costs->bytes.input_stash.num_bytes;
}

/// The passes of a microbatch without recomputation, and what it may save.
struct WholeModel {
  double seconds = 0, way = 0;  // way: to the last layer and back
  double block = no_time;       // of a block's forward pass
  std::int64_t kept_bytes = 0;
  double byte_seconds = 0;        // of what is kept
  std::vector<double> ways = {};  // of blocks, the last one first: from each to the last layer and back
  // Of a recomputed block more than of another one, at least: seconds, and seconds for each byte that it frees.
  double least_more = 0, least_of_byte = no_time;
  std::int64_t most_freed = 0;  // by a recomputed block
};

WholeModel whole_model(const LayerCosts& costs, const BlockOperations& operations) {
  WholeModel whole;
  struct Run {
    const UnitCost* unit = nullptr;
    std::int64_t count = 0;
  };
  std::vector<Run> runs;
  const StageLayers all = {.num_layers = costs.model->num_hidden_layers, .has_embedding = true, .has_head = true};
  for_units(all, *costs.model, {}, costs.tied, [&](const UnitKind& kind, std::int64_t count) {
    runs.push_back({&costs.of(kind), count});
  });
  if (!operations.empty()) whole.least_more = no_time;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const UnitCost& unit = *run->unit;
    const bool is_block = unit.kind.role == UnitKind::Role::block;
    // Between units, and between stages, is a boundary each.
    const std::int64_t bytes =
        kept_bytes(unit) + (unit.kind.role == UnitKind::Role::embedding ? 0 : costs.boundary_bytes);
    whole.seconds += static_cast<double>(run->count) * least_pass_seconds(unit);
    whole.kept_bytes += run->count * bytes;
    for (std::int64_t i = 0; i < run->count; ++i) {
      whole.byte_seconds += static_cast<double>(bytes) * whole.way;
      if (is_block) whole.ways.push_back(whole.way);
      whole.way += way_of(unit);
    }
    if (is_block) whole.block = std::min(whole.block, forward_seconds(unit));
    if (!is_block || operations.empty()) continue;
    UnitKind recomputed_kind = unit.kind;
    recomputed_kind.recompute = operations;
    const UnitCost& recomputed = costs.of(recomputed_kind);
    const double more = std::max(0.0, least_pass_seconds(recomputed) - least_pass_seconds(unit));
    const std::int64_t freed = kept_bytes(unit) - kept_bytes(recomputed);
    whole.least_more = std::min(whole.least_more, more);
    if (freed > 0) whole.least_of_byte = std::min(whole.least_of_byte, more / static_cast<double>(freed));
    whole.most_freed = std::max(whole.most_freed, freed);
  }
  return whole;
}

/// Of p ranks that have so many bytes free together, on average. The first blocks are recomputed, which are held
/// longest.
double holding_seconds(const WholeModel& whole, const PlanShape& shape, double free_bytes) {
  const auto m = static_cast<double>(shape.num_microbatches), p = static_cast<double>(shape.pp);
  const double fill = mean_fill_seconds(shape.pp, whole.block);
  double least = no_time, byte_seconds = whole.byte_seconds, seconds = whole.seconds;
  for (auto way = whole.ways.rbegin();; ++way) {
    const double computing = m * seconds / p + fill, holding = m * byte_seconds / free_bytes;
    least = std::min(least, std::max(computing, holding));
    if (computing >= holding || way == whole.ways.rend() || whole.most_freed == 0) return least;
    byte_seconds -= static_cast<double>(whole.most_freed) * *way;
    seconds += whole.least_more;
  }
}

}  // namespace

double PlanBounds::recomputing_seconds(const PlanShape& shape, const BlockOperations& operations,
                                       TensorPlacement placement, std::int64_t most_bytes) {
  const LayerCosts& costs = layers(shape, operations, placement);
  const WholeModel whole = whole_model(costs, operations);
  const auto m = static_cast<double>(shape.num_microbatches), p = static_cast<double>(shape.pp);
  double more = whole.least_more, holding = 0;
  if (most_bytes != any_bytes) {
    const std::int64_t free_bytes = shape.pp * most_bytes - bytes_.persistent_of_all_ranks(shape, costs),
                       excess = whole.kept_bytes - free_bytes;
    if (free_bytes <= 0 || (excess > 0 && whole.least_of_byte == no_time)) return no_time;
    if (excess > 0) more = std::max(more, static_cast<double>(excess) * whole.least_of_byte);
    holding = holding_seconds(whole, shape, static_cast<double>(free_bytes));
  }
  const double computing = (whole.seconds + more) * m / p + mean_fill_seconds(shape.pp, whole.block);
  return rounding_of_bounds * rounding_of_bounds * std::max({computing, whole.way, holding});
}

}  // namespace echelon
