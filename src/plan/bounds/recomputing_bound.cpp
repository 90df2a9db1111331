// What all pipelines of a shape take at least whose blocks recompute the same operations. Ranks together hold the model
// once: what they hold too much without recomputation, recomputed blocks must free, and each of them takes longer.
#include "plan/bounds/bounds.h"

#include <algorithm>

namespace echelon {
namespace {

double forward_seconds(const UnitCost& unit) { return unit.seconds[static_cast<std::size_t>(PassKind::forward)]; }

double least_pass_seconds(const UnitCost& unit) {
  return forward_seconds(unit) + least_backward(unit.seconds, BackwardKinds::both);
}

std::int64_t kept_bytes(const UnitCost& unit) {
  return unit.costs->bytes.stash.num_bytes + unit.costs->bytes.input_stash.num_bytes;
}

}  // namespace

double PlanBounds::recomputing_seconds(const PlanShape& shape, const BlockOperations& operations,
                                       TensorPlacement placement, std::int64_t most_bytes) {
  const LayerCosts& costs = layers(shape, operations, placement);
  const ModelSpec& model = request_->base.model;
  double seconds = 0, way = 0;  // way: of a microbatch to the last layer and back
  // Of a recomputed block more than of another one, at least: seconds, and seconds for each byte that it frees.
  double least_more = operations.empty() ? 0 : no_time, least_of_byte = no_time;
  for_units(StageLayers{.num_layers = model.num_hidden_layers, .has_embedding = true, .has_head = true}, model, {},
            costs.tied, [&](const UnitKind& kind, std::int64_t count) {
              const UnitCost& unit = costs.of(kind);
              const auto units = static_cast<double>(count);
              seconds += units * least_pass_seconds(unit);
              way += units * (forward_seconds(unit) + least_backward_input(unit.seconds, BackwardKinds::both));
              if (kind.role != UnitKind::Role::block || operations.empty()) return;
              UnitKind recomputed_kind = kind;
              recomputed_kind.recompute = operations;
              const UnitCost& recomputed = costs.of(recomputed_kind);
              const double more = std::max(0.0, least_pass_seconds(recomputed) - least_pass_seconds(unit));
              const std::int64_t freed = kept_bytes(unit) - kept_bytes(recomputed);
              least_more = std::min(least_more, more);
              if (freed > 0) least_of_byte = std::min(least_of_byte, more / static_cast<double>(freed));
            });
  const std::int64_t excess = most_bytes == any_bytes ? 0 : bytes_.of_all_ranks(shape, costs) - shape.pp * most_bytes;
  if (excess > 0 && least_of_byte == no_time) return no_time;
  if (excess > 0) least_more = std::max(least_more, static_cast<double>(excess) * least_of_byte);
  const auto m = static_cast<double>(shape.num_microbatches), p = static_cast<double>(shape.pp);
  return rounding_of_bounds * rounding_of_bounds * std::max((seconds + least_more) * m / p, way);
}

}  // namespace echelon
