#include "ops/operations/elementwise.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/inference.h"

namespace echelon {

void check(const AddArgs& args) {
  const ArgumentChecker must("add");
  must.computes("a", args.a);
  must.computes("b", args.b);
  must.count("b", args.b, args.a.num_elements());
  must.that(accumulate_dtype(args.b.dtype) == accumulate_dtype(args.a.dtype), "b", args.b,
            "have a dtype whose sums have the dtype of a's sums");
  must.like("out", args.out, args.a);
}
OpCost cost(const AddArgs& args) { return cost_by_elements(args.out, 1, bytes_of(args.out, args.a, args.b)); }
Operands operands_of(const AddArgs& args) { return {args.out.dtype, {args.a, args.b}, {args.out}}; }
// A sum of addends is an addend; a sum of an addend and a complete value is a fault.
void infer(Inference& call, const AddArgs& args) {
  call.for_uniform_ranges({args.out, args.a, args.b}, [&](std::int64_t first, std::int64_t count) {
    const Tensor at_a = range_of(args.a, first, count), at_b = range_of(args.b, first, count),
                 out = range_of(args.out, first, count);
    if ((call.is_padding(at_a) || call.is_padding(at_b)) && call.is_nameless(out)) return;
    const Operand a = call.read("a", at_a), b = call.read("b", at_b);
    const LayoutType zero = everywhere(TensorPlacement::zero);
    const TypedPiece *raw_a = call.memory().piece_at(at_a), *raw_b = call.memory().piece_at(at_b);
    LayoutType sum = raw_a->type == zero ? raw_b->type : raw_a->type;
    if (raw_a->type != zero && raw_b->type != zero)
      for (const TypeAxis axis : call.axes()) sum[axis] = call.shared(a, b, axis);
    call.write(out, sum);
  });
}
void sample(SampleOperands& s, AddArgs& args) { args = {s.x({s.m()}), s.x({s.m()}), s.x({s.m()})}; }
SampleSizes usual_sizes(const AddArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const CopyArgs& args) {
  const ArgumentChecker must("copy");
  must.count("out", args.out, args.x.num_elements());
  if (args.out.dtype == args.x.dtype) return;  // any dtype may be copied to itself
  must.computes("x", args.x);
  must.computes("out", args.out);
}
OpCost cost(const CopyArgs& args) { return cost_by_elements(args.out, 0, bytes_of(args.out, args.x)); }
Operands operands_of(const CopyArgs& args) { return {args.out.dtype, {args.x}, {args.out}}; }
void infer(Inference& call, const CopyArgs& args) {
  call.for_uniform_ranges({args.out, args.x}, [&](std::int64_t first, std::int64_t count) {
    const Tensor x = range_of(args.x, first, count), out = range_of(args.out, first, count);
    if (call.is_padding(x) && call.is_nameless(out)) return;
    (void)call.read("x", x);
    call.write(out, call.memory().piece_at(x)->type);
  });
}
void sample(SampleOperands& s, CopyArgs& args) { args = {s.x({s.m()}), s.x({s.m()})}; }
SampleSizes usual_sizes(const CopyArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const FillArgs& args) {
  if (!is_integer(args.out.dtype)) ArgumentChecker("fill").computes("out", args.out);
}
OpCost cost(const FillArgs& args) { return cost_by_elements(args.out, 0, bytes_of(args.out)); }
Operands operands_of(const FillArgs& args) { return {args.out.dtype, {}, {args.out}}; }
void infer(Inference& call, const FillArgs& args) {
  call.write(args.out, everywhere(args.value == 0.0 ? TensorPlacement::zero : TensorPlacement::replicated));
}
void sample(SampleOperands& s, FillArgs& args) { args = {s.x({s.m()}), 0.5}; }
SampleSizes usual_sizes(const FillArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const ScaleArgs& args) { ArgumentChecker("scale").computes("x", args.x); }
OpCost cost(const ScaleArgs& args) { return cost_by_elements(args.x, 1, 2 * bytes_of(args.x)); }
Operands operands_of(const ScaleArgs& args) { return {args.x.dtype, {args.x}, {}}; }
void infer(Inference& /*call*/, const ScaleArgs& /*args*/) {}  // linear, in place
void sample(SampleOperands& s, ScaleArgs& args) { args = {s.x({s.m()}), 1.0}; }
SampleSizes usual_sizes(const ScaleArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const SoftCapArgs& args) {
  const ArgumentChecker must("soft_cap");
  must.computes("x", args.x);
  must.that(args.cap > 0, "x", args.x, "have a cap above 0");
}
// Two multiplications, tanh 3.
OpCost cost(const SoftCapArgs& args) { return cost_by_elements(args.x, 5, 2 * bytes_of(args.x)); }
Operands operands_of(const SoftCapArgs& args) { return {args.x.dtype, {args.x}, {}}; }
void infer(Inference& call, const SoftCapArgs& args) {
  const Operand x = call.read("x", args.x);
  for (const TypeAxis axis : call.axes()) call.require_complete(x, axis);
  call.write(args.x, x.piece.type);
}
void sample(SampleOperands& s, SoftCapArgs& args) { args = {s.x({s.m()}), 30.0}; }
SampleSizes usual_sizes(const SoftCapArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const SoftCapBackwardArgs& args) {
  const ArgumentChecker must("soft_cap_backward");
  must.computes("dx", args.dx);
  must.count("y", args.y, args.dx.num_elements());
  must.that(args.y.dtype == args.dx.dtype || args.y.dtype == accumulate_dtype(args.dx.dtype), "y", args.y,
            "have the dtype of dx, or that of its sums");
  must.that(args.cap > 0, "y", args.y, "have a cap above 0");
}
// Two multiplications, one subtraction, and the multiplication by it.
OpCost cost(const SoftCapBackwardArgs& args) {
  return cost_by_elements(args.dx, 4, 2 * bytes_of(args.dx) + bytes_of(args.y));
}
Operands operands_of(const SoftCapBackwardArgs& args) { return {args.dx.dtype, {args.dx, args.y}, {}}; }
void infer(Inference& call, const SoftCapBackwardArgs& args) {
  const Operand dx = call.read("dx", args.dx), y = call.read("y", args.y);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    type[axis] = call.shared(dx, y, axis);
  }
  call.write(args.dx, type);
}
void sample(SampleOperands& s, SoftCapBackwardArgs& args) { args = {s.x({s.m()}), s.x({s.m()}), 30.0}; }
SampleSizes usual_sizes(const SoftCapBackwardArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const ClipArgs& args) {
  const ArgumentChecker must("clip");
  must.computes("x", args.x);
  must.that(args.limit > 0, "x", args.x, "have a limit above 0");
}
OpCost cost(const ClipArgs& args) { return cost_by_elements(args.x, 2, 2 * bytes_of(args.x)); }
Operands operands_of(const ClipArgs& args) { return {args.x.dtype, {args.x}, {}}; }
void infer(Inference& call, const ClipArgs& args) {
  const Operand x = call.read("x", args.x);
  for (const TypeAxis axis : call.axes()) call.require_complete(x, axis);
  call.write(args.x, x.piece.type);
}
void sample(SampleOperands& s, ClipArgs& args) { args = {s.x({s.m()}), 1.0}; }
SampleSizes usual_sizes(const ClipArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const ClipBackwardArgs& args) {
  const ArgumentChecker must("clip_backward");
  must.computes("dx", args.dx);
  must.like("x", args.x, args.dx);
  must.that(args.limit > 0, "x", args.x, "have a limit above 0");
}
OpCost cost(const ClipBackwardArgs& args) {
  return cost_by_elements(args.dx, 1, 2 * bytes_of(args.dx) + bytes_of(args.x));
}
Operands operands_of(const ClipBackwardArgs& args) { return {args.dx.dtype, {args.dx, args.x}, {}}; }
void infer(Inference& call, const ClipBackwardArgs& args) {
  const Operand dx = call.read("dx", args.dx), x = call.read("x", args.x);
  LayoutType type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    type[axis] = call.shared(dx, x, axis);
  }
  call.write(args.dx, type);
}
void sample(SampleOperands& s, ClipBackwardArgs& args) { args = {s.x({s.m()}), s.x({s.m()}), 1.0}; }
SampleSizes usual_sizes(const ClipBackwardArgs& /*args*/) { return usual_sizes_of_elements(); }

}  // namespace echelon
