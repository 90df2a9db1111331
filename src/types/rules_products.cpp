// c[M, N] = a[M, K] b[K, N] for n ranks that hold parts or addends. One of four things may be cut, and only one along
// the same axis:
//
//     M of a: parts of c        N of b: parts of c        K of both: addends of c        nothing, but a or b is an
//     addend: so is c, since c is linear in each
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

void infer(Inference& call, const MatmulArgs& args) {
  const Operand a = call.read("a", args.a), b = call.read("b", args.b);
  const MatrixFactor left = {a, args.transpose_a ? 0 : 1, args.transpose_a ? 1 : 0},
                     right = {b, args.transpose_b ? 1 : 0, args.transpose_b ? 0 : 1};
  LayoutType c;
  if (args.is_float8())  // rounded addends are not the addends of what is rounded
    for (const TypeAxis axis : call.axes())
      for (const Operand& operand : {a, b}) call.require_complete(operand, axis);
  for (const TypeAxis axis : call.axes()) c[axis] = product(call, axis, left, right, args.c);
  args.accumulates ? call.add_to("c", args.c, c) : call.write(args.c, c);
}

void infer(Inference& call, const AddBiasArgs& args) {
  const Operand y = call.read("y", args.y), bias = call.read("bias", args.bias);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    const bool goes_together = y.is_cut_along(axis, 1) ? bias.is_cut_along(axis, 0) : bias[axis].held != Held::sharded;
    if (!goes_together) call.fail_together(y, bias, axis);
    call.require_complete(bias, axis);
    type[axis] = y[axis];
  }
  call.write(args.y, type);
}

AxisLayout sum_of_rows(Inference& call, const Operand& x, TypeAxis axis) {
  if (x.is_cut_along(axis, 1)) return sharded_rows;
  if (x[axis].held == Held::sharded) return partial_layout;
  // What lies exactly where this rank's part of a gathered tensor lies is that part: the other ranks sum theirs.
  if (x[axis] == replicated_layout && call.memory().is_own_part(x.piece, x.tensor, axis)) return partial_layout;
  if (x[axis].held == Held::partial) return partial_layout;
  call.require_complete(x, axis);
  return x[axis];
}

void infer(Inference& call, const BiasBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) type[axis] = sum_of_rows(call, dy, axis);
  call.add_to("dbias", args.dbias, type);
}

}  // namespace echelon
