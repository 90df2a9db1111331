#include "ops/operations/activations.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

/// The layout of dx from that of dy and of what forward kept. dx is linear in dy, so dy may be an addend where the kept
/// values are replicated.
AxisLayout linear_in(const Inference& call, const Operand& dy, const Operand& kept, TypeAxis axis) {
  call.require_complete(kept, axis);
  if (dy[axis] == partial_layout && kept[axis] == replicated_layout) return partial_layout;
  return call.shared(dy, kept, axis);
}

void require_bias_of(const Inference& call, const Operand& x, const Operand& bias, TypeAxis axis) {
  const bool goes_together =
      x.is_sharded_along(axis, 1) ? bias.is_sharded_along(axis, 0) : bias[axis].placement != TensorPlacement::sharded;
  if (!goes_together) call.fail_together(x, bias, axis);
  call.require_complete(bias, axis);
}

}  // namespace

void check(const GeluArgs& args) {
  const ArgumentChecker must("gelu");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
}
// y = x/2 (1 + tanh(c (x + a x^3))): 4 for the argument, then 1 + 3; the bias 1. The argument of erf is c x.
OpCost cost(const GeluArgs& args) {
  const std::int64_t more = args.bias.exists() ? 1 : 0;
  return cost_by_rows(args.x, (args.kind == GeluKind::tanh ? 8 : 5) + more,
                      bytes_of(args.x, args.y) + bytes_if(args.bias));
}
Operands operands_of(const GeluArgs& args) { return {args.y.dtype, existing({args.x, args.bias}), {args.y}}; }
void infer(Inference& call, const GeluArgs& args) {
  const Operand x = call.read("x", args.x);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (args.bias.exists()) require_bias_of(call, x, call.read("bias", args.bias), axis);
  }
  call.write(args.y, x.piece.type);
}
void sample(SampleOperands& s, GeluArgs& args) { args = {.x = s.rows(), .y = s.rows(), .bias = s.x({s.n()})}; }
SampleSizes usual_sizes(const GeluArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const GeluBackwardArgs& args) {
  const ArgumentChecker must("gelu_backward");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
  if (args.dbias.exists()) must.count("dbias", args.dbias, num_columns(args.x));
  if (args.dbias.exists()) must.gradient("dbias", args.dbias, args.x.dtype);
  if (args.y.exists()) must.like("y", args.y, args.x);
}
// The same argument and its derivative, then (1 + t)/2 + x/2 (1 - t^2) u', times dy; y is one multiplication more.
// With erf: its argument and value 2, (1 + t)/2 2, exp(-x^2/2) 3, times x c, added, times dy 4.
OpCost cost(const GeluBackwardArgs& args) {
  const std::int64_t more = (args.bias.exists() ? 1 : 0) + (args.dbias.exists() ? 1 : 0) + (args.y.exists() ? 1 : 0);
  return cost_by_rows(
      args.x, (args.kind == GeluKind::tanh ? 16 : 11) + more,
      bytes_of(args.x, args.dy, args.dx) + bytes_if(args.bias) + 2 * bytes_if(args.dbias) + bytes_if(args.y));
}
Operands operands_of(const GeluBackwardArgs& args) {
  return {args.dx.dtype, existing({args.dy, args.x, args.bias, args.dbias}), existing({args.dx, args.y})};
}
void infer(Inference& call, const GeluBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x);
  LayoutType dx;
  for (const TypeAxis axis : call.axes()) {
    dx[axis] = linear_in(call, dy, x, axis);
    if (args.bias.exists()) require_bias_of(call, x, call.read("bias", args.bias), axis);
  }
  if (args.y.exists()) call.write(args.y, x.piece.type);
  call.write(args.dx, dx);
  if (!args.dbias.exists()) return;
  const Operand written = call.read("dx", args.dx);
  LayoutType dbias;
  for (const TypeAxis axis : call.axes()) dbias[axis] = sum_of_rows(call, written, axis);
  call.add_to("dbias", args.dbias, dbias);
}
void sample(SampleOperands& s, GeluBackwardArgs& args) {
  const Tensor dy = s.rows(), x = s.rows();
  args = {.dy = dy, .x = x, .dx = x, .bias = s.x({s.n()}), .dbias = s.sums({s.n()}), .y = dy};
}
SampleSizes usual_sizes(const GeluBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const SwigluArgs& args) {
  const ArgumentChecker must("swiglu");
  must.computes("y", args.y);
  must.like("gate", args.gate, args.y);
  must.like("up", args.up, args.y);
}
// sigmoid 3, two multiplications; gelu 8, one.
OpCost cost(const SwigluArgs& args) {
  return cost_by_elements(args.y, args.kind == GateKind::silu ? 5 : 9, bytes_of(args.y, args.gate, args.up));
}
Operands operands_of(const SwigluArgs& args) { return {args.y.dtype, {args.gate, args.up}, {args.y}}; }
void infer(Inference& call, const SwigluArgs& args) {
  const Operand gate = call.read("gate", args.gate), up = call.read("up", args.up);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {gate, up}) call.require_complete(x, axis);
    y[axis] = call.shared(gate, up, axis);
  }
  call.write(args.y, y);
}
void sample(SampleOperands& s, SwigluArgs& args) {
  args = {.gate = s.x({s.m()}), .up = s.x({s.m()}), .y = s.x({s.m()})};
}
SampleSizes usual_sizes(const SwigluArgs& /*args*/) { return usual_sizes_of_elements(); }

void check(const SwigluBackwardArgs& args) {
  const ArgumentChecker must("swiglu_backward");
  must.computes("dy", args.dy);
  for (const Tensor& tensor : {args.gate, args.up, args.dgate, args.dup})
    must.like("gate, up or a gradient of them", tensor, args.dy);
  if (args.y.exists()) must.like("y", args.y, args.dy);
}
// sigmoid 3, dup 2, dgate 5; y one multiplication more. With gelu: what gelu_backward computes 16, dup 2, dgate 1.
OpCost cost(const SwigluBackwardArgs& args) {
  return cost_by_elements(args.dy, (args.kind == GateKind::silu ? 10 : 19) + (args.y.exists() ? 1 : 0),
                          bytes_of(args.dgate, args.dup, args.dy, args.gate, args.up) + bytes_if(args.y));
}
Operands operands_of(const SwigluBackwardArgs& args) {
  return {args.dgate.dtype, {args.dy, args.gate, args.up}, existing({args.dgate, args.dup, args.y})};
}
void infer(Inference& call, const SwigluBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy), gate = call.read("gate", args.gate), up = call.read("up", args.up);
  LayoutType dx, y;
  for (const TypeAxis axis : call.axes()) {
    y[axis] = call.shared(gate, up, axis);
    dx[axis] = linear_in(call, dy, gate, axis);
  }
  if (args.y.exists()) call.write(args.y, y);
  call.write(args.dgate, dx);
  call.write(args.dup, dx);
}
void sample(SampleOperands& s, SwigluBackwardArgs& args) {
  const Tensor dy = s.x({s.m()}), gate = s.x({s.m()}), up = s.x({s.m()});
  args = {.dy = dy, .gate = gate, .up = up, .dgate = gate, .dup = up, .y = dy};
}
SampleSizes usual_sizes(const SwigluBackwardArgs& /*args*/) { return usual_sizes_of_elements(); }

}  // namespace echelon
