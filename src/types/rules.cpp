#include "types/rules.h"

namespace echelon {

bool MatrixFactor::is_sharded(TypeAxis axis, int dim) const {
  if (x.is_sharded_along(axis, dim)) return true;
  return dim == 0 && is_sharded_between_rows(x[axis], x.tensor) && !x.is_sharded_along(axis, 1);
}

AxisLayout product(const Inference& call, TypeAxis axis, const MatrixFactor& a, const MatrixFactor& b,
                   const Tensor& c) {
  const AxisLayout of_a = a.x[axis], of_b = b.x[axis];
  const bool a_is_replicated = of_a == replicated_layout, b_is_replicated = of_b == replicated_layout;
  const int num_dims = c.sizes.num_dims();
  if (a.is_sharded(axis, a.inner) && b.is_sharded(axis, b.inner)) return partial_layout;
  if (a.is_sharded(axis, a.outer) && b_is_replicated) {
    if (a.outer == 0) return with_rows_of(of_a, a.x.tensor.size(-1), c.size(-1));
    return num_dims == 2 ? sharded_rows : sharded_along(c, num_dims - 2);
  }
  if (b.is_sharded(axis, b.outer) && a_is_replicated) return sharded_along(c, num_dims - 1);
  const bool is_linear = (a_is_replicated && of_b == partial_layout) || (b_is_replicated && of_a == partial_layout);
  if (is_linear) return partial_layout;
  for (const MatrixFactor& factor : {a, b}) call.require_complete(factor.x, axis);
  if (of_a.placement == TensorPlacement::sharded && of_b.placement == TensorPlacement::sharded)
    call.fail_together(a.x, b.x, axis);
  for (const MatrixFactor& factor : {a, b}) call.require_whole(factor.x, axis);
  return call.shared(a.x, b.x, axis);
}

AxisLayout with_rows_of(AxisLayout layout, std::int64_t from, std::int64_t to) {
  if (layout.placement == TensorPlacement::sharded && layout.block != outermost)
    layout.block = layout.block / from * to;
  return layout;
}

AxisLayout sum_of_rows(Inference& call, const Operand& x, TypeAxis axis) {
  if (x.is_sharded_along(axis, 1)) return sharded_rows;
  if (x[axis].placement == TensorPlacement::sharded) return partial_layout;
  // What is exactly this rank's part of a gathered tensor is summed here, and the other parts on the other ranks.
  if (x[axis] == replicated_layout && call.memory().is_own_part(x.piece, x.tensor, axis)) return partial_layout;
  if (x[axis].placement == TensorPlacement::partial) return partial_layout;
  call.require_complete(x, axis);
  return x[axis];
}

LayoutType as_addend(const Inference& call, const Operand& x, const Tensor& sum, LayoutType type) {
  const NamedMemory* named = call.memory().named_at(sum);
  if (named == nullptr || !named->is_addend) return type;
  for (const TypeAxis axis : call.axes()) {
    if (type[axis] != replicated_layout) continue;
    if (call.ranks().index(axis) > 0)
      call.fail(fmt::format("{}, so it counts where {} = 0 alone, but rank {} adds it too", call.words(x, axis),
                            call.ranks().name(axis), call.ranks().rank()));
    type[axis] = partial_layout;
  }
  return type;
}

void require_whole_rows_of_heads(const Inference& call, const Operand& x, TypeAxis axis) {
  call.require_complete(x, axis);
  const bool goes = x[axis].placement != TensorPlacement::sharded || x.is_sharded_along(axis, dim_of_sequences) ||
                    x.is_sharded_along(axis, dim_of_heads);
  if (!goes) call.require_whole(x, axis);
}

void require_same_rows(const Inference& call, const Operand& tokens, const Operand& of_rows, TypeAxis axis) {
  const bool tokens_are_cut = tokens[axis].placement == TensorPlacement::sharded,
             rows_are_cut = of_rows.is_sharded_along(axis, dim_of_rows);
  if (tokens_are_cut != rows_are_cut) call.fail_together(tokens, of_rows, axis);
}

}  // namespace echelon
