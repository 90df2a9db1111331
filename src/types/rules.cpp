#include "types/rules.h"

namespace echelon {

bool MatrixFactor::is_cut(TypeAxis axis, int dim) const {
  if (x.is_cut_along(axis, dim)) return true;
  return dim == 0 && is_cut_between_rows(x[axis], x.tensor) && !x.is_cut_along(axis, 1);
}

AxisLayout product(const Inference& call, TypeAxis axis, const MatrixFactor& a, const MatrixFactor& b,
                   const Tensor& c) {
  const AxisLayout of_a = a.x[axis], of_b = b.x[axis];
  const bool a_is_replicated = of_a == replicated_layout, b_is_replicated = of_b == replicated_layout;
  const int num_dims = c.sizes.num_dims();
  if (a.is_cut(axis, a.inner) && b.is_cut(axis, b.inner)) return partial_layout;
  if (a.is_cut(axis, a.outer) && b_is_replicated) {
    if (a.outer == 0) return with_rows_of(of_a, a.x.tensor.size(-1), c.size(-1));
    return num_dims == 2 ? sharded_rows : sharded_along(c, num_dims - 2);
  }
  if (b.is_cut(axis, b.outer) && a_is_replicated) return sharded_along(c, num_dims - 1);
  const bool is_linear = (a_is_replicated && of_b == partial_layout) || (b_is_replicated && of_a == partial_layout);
  if (is_linear) return partial_layout;
  for (const MatrixFactor& factor : {a, b}) call.require_complete(factor.x, axis);
  if (of_a.held == Held::sharded && of_b.held == Held::sharded) call.fail_together(a.x, b.x, axis);
  for (const MatrixFactor& factor : {a, b}) call.require_whole(factor.x, axis);
  return call.shared(a.x, b.x, axis);
}

AxisLayout with_rows_of(AxisLayout layout, std::int64_t from, std::int64_t to) {
  if (layout.held == Held::sharded && layout.block != outermost) layout.block = layout.block / from * to;
  return layout;
}

AxisLayout sum_of_rows(Inference& call, const Operand& x, TypeAxis axis) {
  if (x.is_cut_along(axis, 1)) return sharded_rows;
  if (x[axis].held == Held::sharded) return partial_layout;
  // What is exactly this rank's part of a gathered tensor is summed here, and the other parts on the other ranks.
  if (x[axis] == replicated_layout && call.memory().is_own_part(x.piece, x.tensor, axis)) return partial_layout;
  if (x[axis].held == Held::partial) return partial_layout;
  call.require_complete(x, axis);
  return x[axis];
}

void require_whole_rows_of_heads(const Inference& call, const Operand& x, TypeAxis axis) {
  call.require_complete(x, axis);
  const bool goes =
      x[axis].held != Held::sharded || x.is_cut_along(axis, dim_of_sequences) || x.is_cut_along(axis, dim_of_heads);
  if (!goes) call.require_whole(x, axis);
}

void require_same_rows(const Inference& call, const Operand& tokens, const Operand& of_rows, TypeAxis axis) {
  const bool tokens_are_cut = tokens[axis].held == Held::sharded,
             rows_are_cut = of_rows.is_cut_along(axis, dim_of_rows);
  if (tokens_are_cut != rows_are_cut) call.fail_together(tokens, of_rows, axis);
}

}  // namespace echelon
