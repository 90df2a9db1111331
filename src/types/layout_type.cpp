#include "types/layout_type.h"

#include <fmt/format.h>

namespace echelon {

LayoutType everywhere(Held held) {
  LayoutType type;
  type.axes.fill({held});
  return type;
}

std::int64_t block_from(const Sizes& sizes, int dim) {
  std::int64_t product = 1;
  for (int d = dim; d < sizes.num_dims(); ++d) product *= sizes[d];
  return product;
}

bool is_cut_along(AxisLayout layout, const Tensor& x, int dim) {
  if (layout.held != Held::sharded) return false;
  if (layout.block == outermost) return dim == 0;
  return dim > 0 && layout.block == block_from(x.sizes, dim);
}

bool is_cut_between_rows(AxisLayout layout, const Tensor& x) {
  if (layout.held != Held::sharded) return false;
  return layout.block == outermost || layout.block % x.size(-1) == 0;
}

std::string describe(AxisLayout layout, const Tensor& x) {
  switch (layout.held) {
    case Held::replicated: return "replicated";
    case Held::sharded:
      for (int dim = 0; dim < x.sizes.num_dims(); ++dim)
        if (is_cut_along(layout, x, dim)) return fmt::format("sharded({})", dim);
      return fmt::format("sharded in blocks of {}", layout.block);
    case Held::partial: return "partial";
    case Held::local_sum: return "partial in each rank's own scale";
    case Held::local_max: return "the maximum of each rank's part";
    case Held::own: return "each rank's own";
    case Held::zero: return "zero";
  }
  return "?";
}

}  // namespace echelon
