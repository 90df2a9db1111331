#include "ops/operations/latent_attention.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

/// `x` [N, H, P + V], `rope` [N, R], `k` and `v` [N, H, R + P].
void check_latents(const ArgumentChecker& must, const Tensor& x, const Tensor& rope, const Tensor& k, const Tensor& v) {
  must.dims("keys", k, 3);
  must.computes("keys", k);
  must.like("values", v, k);
  must.dims("x", x, 3);
  must.dtype("x", x, k.dtype);
  must.dims("rope", rope, 2);
  must.dtype("rope", rope, k.dtype);
  const std::int64_t num_rotary = rope.size(1), num_plain = k.size(2) - num_rotary;
  must.that(x.size(0) == k.size(0) && x.size(1) == k.size(1), "x", x, "have the tokens and heads of the keys");
  must.that(rope.size(0) == k.size(0), "rope", rope, "have the tokens of the keys");
  must.that(num_plain >= 0 && x.size(2) >= num_plain && x.size(2) - num_plain <= k.size(2), "x", x,
            "have the other columns of a key, and values that are not wider than it");
}

/// Of the heads that a rank has, the rows get another width.
AxisLayout with_width(const Operand& from, TypeAxis axis, const Tensor& to) {
  return with_rows_of(from[axis], from.tensor.size(-1), to.size(-1));
}

}  // namespace

void check(const ExpandLatentsArgs& args) {
  check_latents(ArgumentChecker("expand_latents"), args.x, args.rope, args.k, args.v);
}
OpCost cost(const ExpandLatentsArgs& args) {
  return cost_by_rows(args.k, 0, bytes_of(args.x, args.rope, args.k, args.v));
}
Operands operands_of(const ExpandLatentsArgs& args) { return {args.k.dtype, {args.x, args.rope}, {args.k, args.v}}; }
// Ranks that have some of the heads each need the whole of what all heads share.
void infer(Inference& call, const ExpandLatentsArgs& args) {
  const Operand x = call.read("x", args.x), rope = call.read("rope", args.rope);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (x.is_sharded_along(axis, 1))
      call.require_whole(rope, axis);
    else
      (void)call.shared(x, rope, axis);
    type[axis] = with_width(x, axis, args.k);
  }
  call.write(args.k, type);
  call.write(args.v, type);
}
void sample(SampleOperands& s, ExpandLatentsArgs& args) {
  const std::int64_t C = s.n();
  args = {.x = s.x({s.m(), 1, 2 * C}), .rope = s.x({s.m(), 0}), .k = s.x({s.m(), 1, C}), .v = s.x({s.m(), 1, C})};
}
SampleSizes usual_sizes(const ExpandLatentsArgs& /*args*/) { return {}; }

void check(const ExpandLatentsBackwardArgs& args) {
  check_latents(ArgumentChecker("expand_latents_backward"), args.dx, args.drope, args.dk, args.dv);
}
OpCost cost(const ExpandLatentsBackwardArgs& args) {
  return cost_by_rows(args.dk, 1, bytes_of(args.dk, args.dv, args.dx, args.drope));
}
Operands operands_of(const ExpandLatentsBackwardArgs& args) {
  return {args.dk.dtype, {args.dk, args.dv}, {args.dx, args.drope}};
}
// The heads of a rank give an addend of the gradient of what all heads share.
void infer(Inference& call, const ExpandLatentsBackwardArgs& args) {
  const Operand dk = call.read("dk", args.dk), dv = call.read("dv", args.dv);
  LayoutType dx, drope;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(dk, axis);
    const AxisLayout both = call.shared(dk, dv, axis);
    dx[axis] = with_width(dk, axis, args.dx);
    drope[axis] = dk.is_sharded_along(axis, 1) ? partial_layout : both;
  }
  call.write(args.dx, dx);
  call.write(args.drope, drope);
}
void sample(SampleOperands& s, ExpandLatentsBackwardArgs& args) {
  const std::int64_t C = s.n();
  args = {.dk = s.x({s.m(), 1, C}), .dv = s.x({s.m(), 1, C}), .dx = s.x({s.m(), 1, 2 * C}), .drope = s.x({s.m(), 0})};
}
SampleSizes usual_sizes(const ExpandLatentsBackwardArgs& /*args*/) { return {}; }

void check(const ResizeRowsArgs& args) {
  const ArgumentChecker must("resize_rows");
  must.dims("x", args.x, 3);
  must.computes("x", args.x);
  must.dims("y", args.y, 3);
  must.dtype("y", args.y, args.x.dtype);
  must.that(args.y.size(0) == args.x.size(0) && args.y.size(1) == args.x.size(1), "y", args.y,
            "have the tokens and heads of x");
}
OpCost cost(const ResizeRowsArgs& args) { return cost_by_rows(args.y, 0, 2 * bytes_of(args.y)); }
Operands operands_of(const ResizeRowsArgs& args) { return {args.x.dtype, {args.x}, {args.y}}; }
void infer(Inference& call, const ResizeRowsArgs& args) {
  const Operand x = call.read("x", args.x);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    // The columns of one head are that head.
    if (x.is_sharded_along(axis, 2) && !x.is_sharded_along(axis, 1)) call.require_whole(x, axis);
    y[axis] = with_width(x, axis, args.y);
  }
  call.write(args.y, y);
}
void sample(SampleOperands& s, ResizeRowsArgs& args) {
  args = {.x = s.x({s.m(), 1, s.n()}), .y = s.x({s.m(), 1, s.n()})};
}
SampleSizes usual_sizes(const ResizeRowsArgs& /*args*/) { return {}; }

}  // namespace echelon
