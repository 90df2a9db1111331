// Number by number: all operands are held alike. A sum and a multiple of addends are addends, anything else of them is
// a fault. The gradient of an activation is linear in dy, so dy may be an addend where the kept values are replicated.
#include "types/rules.h"

namespace echelon {
namespace {

/// The layout of dx from that of dy and of what forward kept.
AxisLayout linear_in(const Inference& call, const Operand& dy, const Operand& kept, TypeAxis axis) {
  call.require_complete(kept, axis);
  if (dy[axis] == partial_layout && kept[axis] == replicated_layout) return partial_layout;
  return call.shared(dy, kept, axis);
}

void require_bias_of(const Inference& call, const Operand& x, const Operand& bias, TypeAxis axis) {
  const bool goes_together = x.is_cut_along(axis, 1) ? bias.is_cut_along(axis, 0) : bias[axis].held != Held::sharded;
  if (!goes_together) call.fail_together(x, bias, axis);
  call.require_complete(bias, axis);
}

}  // namespace

void infer(Inference& call, const AddArgs& args) {
  call.for_uniform_ranges({args.out, args.a, args.b}, [&](std::int64_t first, std::int64_t count) {
    const Tensor at_a = range_of(args.a, first, count), at_b = range_of(args.b, first, count),
                 out = range_of(args.out, first, count);
    if ((call.is_padding(at_a) || call.is_padding(at_b)) && call.is_nameless(out)) return;
    const Operand a = call.read("a", at_a), b = call.read("b", at_b);
    const LayoutType zero = everywhere(Held::zero);
    const TypedPiece *raw_a = call.memory().piece_at(at_a), *raw_b = call.memory().piece_at(at_b);
    LayoutType sum = raw_a->type == zero ? raw_b->type : raw_a->type;
    if (raw_a->type != zero && raw_b->type != zero)
      for (const TypeAxis axis : call.axes()) sum[axis] = call.shared(a, b, axis);
    call.write(out, sum);
  });
}

void infer(Inference& call, const CopyArgs& args) {
  call.for_uniform_ranges({args.out, args.x}, [&](std::int64_t first, std::int64_t count) {
    const Tensor x = range_of(args.x, first, count), out = range_of(args.out, first, count);
    if (call.is_padding(x) && call.is_nameless(out)) return;
    (void)call.read("x", x);
    call.write(out, call.memory().piece_at(x)->type);
  });
}

void infer(Inference& call, const FillArgs& args) {
  call.write(args.out, everywhere(args.value == 0.0 ? Held::zero : Held::replicated));
}

void infer(Inference& /*call*/, const ScaleArgs& /*args*/) {}  // linear, in place

void infer(Inference& call, const GeluArgs& args) {
  const Operand x = call.read("x", args.x);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (args.bias.exists()) require_bias_of(call, x, call.read("bias", args.bias), axis);
  }
  call.write(args.y, x.piece.type);
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

void infer(Inference& call, const SwigluArgs& args) {
  const Operand gate = call.read("gate", args.gate), up = call.read("up", args.up);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {gate, up}) call.require_complete(x, axis);
    y[axis] = call.shared(gate, up, axis);
  }
  call.write(args.y, y);
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

}  // namespace echelon
