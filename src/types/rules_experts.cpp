// Rows of tokens among experts. Every rank orders the rows of its own tokens: where tokens are cut over ranks, slots
// are cut with them, and offsets are each rank's own. The rows of experts are cut like the tokens that they are of.
// Experts cut over ranks (expert parallelism) have no rule yet.
#include "types/rules.h"

namespace echelon {
namespace {

/// Slots go with the rows of the tokens that they were made of.
void require_same_tokens(const Inference& call, const Operand& of_tokens, const Operand& rows, TypeAxis axis) {
  const bool tokens_are_cut = of_tokens[axis].held == Held::sharded, rows_are_cut = rows.is_cut_along(axis, 0);
  call.require_complete(of_tokens, axis);
  if (rows[axis] != partial_layout && tokens_are_cut != rows_are_cut) call.fail_together(of_tokens, rows, axis);
}

/// Offsets count the rows of the same tokens: each rank its own, where these are cut.
void require_count_of(const Inference& call, const Operand& offsets, const Operand& rows, TypeAxis axis) {
  if ((offsets[axis] == own_layout) != (rows.is_cut_along(axis, 0) || rows[axis] == own_layout))
    call.fail_together(offsets, rows, axis);
}

}  // namespace

void infer(Inference& call, const ExpertSlotsArgs& args) {
  const Operand experts = call.read("experts", args.experts);
  LayoutType offsets;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(experts, axis);
    offsets[axis] = experts[axis].held == Held::sharded ? own_layout : experts[axis];
  }
  call.write(args.slots, experts.piece.type);
  call.write(args.offsets, offsets);
}

void infer(Inference& call, const PermuteToExpertsArgs& args) {
  const Operand x = call.read("x", args.x), slots = call.read("slots", args.slots);
  for (const TypeAxis axis : call.axes()) require_same_tokens(call, slots, x, axis);
  call.write(args.y, x.piece.type);
}

void infer(Inference& call, const CombineExpertsArgs& args) {
  const Operand y = call.read("y", args.y), slots = call.read("slots", args.slots);
  LayoutType out = y.piece.type;
  for (const TypeAxis axis : call.axes()) require_same_tokens(call, slots, y, axis);
  if (args.weights.exists()) {
    const Operand weights = call.read("weights", args.weights);
    for (const TypeAxis axis : call.axes()) require_same_tokens(call, weights, y, axis);
  }
  call.write(args.out, out);
}

// dy is linear in dout, and so is dweights; a part of the columns of both dout and y gives an addend of dweights, as a
// product does.
void infer(Inference& call, const CombineExpertsBackwardArgs& args) {
  const Operand dout = call.read("dout", args.dout), y = call.read("y", args.y), slots = call.read("slots", args.slots),
                weights = call.read("weights", args.weights);
  LayoutType dy, dweights;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {slots, weights}) require_same_tokens(call, x, dout, axis);
    const bool columns_are_cut = dout.is_cut_along(axis, 1) && y.is_cut_along(axis, 1);
    const bool is_linear = (dout[axis] == partial_layout && y[axis] == replicated_layout) ||
                           (y[axis] == partial_layout && dout[axis] == replicated_layout);
    dy[axis] = dout[axis];
    if (columns_are_cut || is_linear)
      dweights[axis] = partial_layout;
    else
      dweights[axis] = with_rows_of(call.shared(dout, y, axis), args.y.size(1), 1);
  }
  call.write(args.dy, dy);
  call.write(args.dweights, dweights);
}

void infer(Inference& call, const GroupedMatmulArgs& args) {
  const Operand a = call.read("a", args.a), w = call.read("w", args.w), offsets = call.read("offsets", args.offsets);
  LayoutType c;
  for (const TypeAxis axis : call.axes()) {
    require_count_of(call, offsets, a, axis);
    if (w.is_cut_along(axis, 0)) call.require_whole(w, axis);
    c[axis] = product(call, axis, {a, 1, 0}, {w, args.transpose_w ? 2 : 1, args.transpose_w ? 1 : 2}, args.c);
  }
  args.accumulates ? call.add_to("c", args.c, c) : call.write(args.c, c);
}

void infer(Inference& call, const GroupedMatmulBackwardWeightArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x), offsets = call.read("offsets", args.offsets);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& rows : {dy, x}) require_count_of(call, offsets, rows, axis);
    dw[axis] = product(call, axis, {dy, 0, 1}, {x, 0, 1}, args.dw);
  }
  call.add_to("dw", args.dw, dw);
}

}  // namespace echelon
