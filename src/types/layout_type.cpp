#include "types/layout_type.h"

#include <fmt/format.h>

#include <utility>

namespace echelon {

LayoutType everywhere(TensorPlacement placement) {
  LayoutType type;
  type.axes.fill({placement});
  return type;
}

std::int64_t block_from(const Sizes& sizes, int dim) {
  std::int64_t product = 1;
  for (int d = dim; d < sizes.num_dims(); ++d) product *= sizes[d];
  return product;
}

std::optional<AxisLayout> united(AxisLayout a, AxisLayout b, int n) {
  if (a.placement != TensorPlacement::attended || b.placement != TensorPlacement::attended) return {};
  if (a.block != b.block || a.distance != b.distance || a.count + b.count > n) return {};
  if ((a.first + a.count) % n != b.first) std::swap(a, b);
  if ((a.first + a.count) % n != b.first) return {};
  if (a.count + b.count < n) return AxisLayout{a.placement, a.block, a.distance, a.first, a.count + b.count};
  if (a.distance != 0) return {};
  return AxisLayout{TensorPlacement::sharded, a.block};
}

bool is_sharded_along(AxisLayout layout, const Tensor& x, int dim) {
  if (layout.placement != TensorPlacement::sharded) return false;
  if (layout.block == outermost) return dim == 0;
  return dim > 0 && layout.block == block_from(x.sizes, dim);
}

bool is_sharded_between_rows(AxisLayout layout, const Tensor& x) {
  if (layout.placement != TensorPlacement::sharded) return false;
  return layout.block == outermost || layout.block % x.size(-1) == 0;
}

std::string describe(AxisLayout layout, const Tensor& x) {
  if (layout.order == RowOrder::by_rank) {
    layout.order = RowOrder::ascending;
    return fmt::format("{}, rank after rank", describe(layout, x));
  }
  if (layout.distance != 0) {
    const int distance = std::exchange(layout.distance, 0);
    return fmt::format("{} of the rank {} before", describe(layout, x), distance);
  }
  if (layout.copies > 1) {
    const int copies = std::exchange(layout.copies, 1);
    return fmt::format("{} on {} ranks each", describe(layout, x), copies);
  }
  switch (layout.placement) {
    case TensorPlacement::replicated: return "replicated";
    case TensorPlacement::sharded:
      for (int dim = 0; dim < x.sizes.num_dims(); ++dim)
        if (is_sharded_along(layout, x, dim)) return fmt::format("sharded({})", dim);
      return fmt::format("sharded in blocks of {}", layout.block);
    case TensorPlacement::partial: return "partial";
    case TensorPlacement::local_sum: return "partial in each rank's own scale";
    case TensorPlacement::local_max: return "the maximum of each rank's part";
    case TensorPlacement::own: return "each rank's own";
    case TensorPlacement::zero: return "zero";
    case TensorPlacement::addends_of_parts:
      layout.placement = TensorPlacement::sharded;
      return fmt::format("addends of parts, {}", describe(layout, x));
    case TensorPlacement::dispatched:
      return layout.block == outermost ? "dispatched to experts" : "dispatched to experts, features of them";
    case TensorPlacement::dispatched_addends: return "addends at the ranks of an expert's features";
    case TensorPlacement::addends_at_node: return "addends from the ranks of an expert's features";
    case TensorPlacement::at_node: return "sent towards experts";
    case TensorPlacement::departed: return "sent to experts";
    case TensorPlacement::experts: return "each rank's experts";
    case TensorPlacement::expert_addends: return "addends of each rank's experts";
    case TensorPlacement::attended: return fmt::format("attended to {} of the ring's blocks", layout.count);
  }
  return "?";
}

}  // namespace echelon
