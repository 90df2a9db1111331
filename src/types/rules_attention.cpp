// Attention mixes positions and keeps sequences and heads apart: a rank needs all positions of some heads of some sequences. Where it has only some of a kv
// head's query heads (k, v replicated, q sharded along its heads), its dk and dv are addends.
#include "types/rules.h"

#include <fmt/format.h>

namespace echelon {
namespace {

constexpr int sequences = 0, heads = 2;  // dims of q, k, v [B, T, H, C]

/// Sequences may be cut, and heads. Fails for anything else.
void require_whole_rows_of_heads(const Inference& call, const Operand& x, TypeAxis axis) {
  call.require_complete(x, axis);
  const bool goes = x[axis].held != Held::sharded || x.is_cut_along(axis, sequences) || x.is_cut_along(axis, heads);
  if (!goes) call.require_whole(x, axis);
}

struct AttentionTypes {
  LayoutType out, lse, dkv;
};

AttentionTypes attention_types(const Inference& call, const Operand& q, const Operand& k, const Operand& v, const Tensor& lse) {
  AttentionTypes types;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {q, k, v}) require_whole_rows_of_heads(call, x, axis);
    if (k[axis] != v[axis]) call.fail_together(k, v, axis);
    const bool heads_are_cut = q.is_cut_along(axis, heads), shares_kv = heads_are_cut && k[axis] == replicated_layout;
    const bool kv_heads_are_cut = heads_are_cut && k.is_cut_along(axis, heads);
    if (!shares_kv && !kv_heads_are_cut && q[axis] != k[axis]) call.fail_together(q, k, axis);
    types.out[axis] = q[axis];
    types.lse[axis] = heads_are_cut ? sharded_along(lse, 1) : q[axis];
    types.dkv[axis] = shares_kv ? partial_layout : k[axis];
  }
  return types;
}

void require_type(const Inference& call, const Operand& x, const LayoutType& type) {
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (x[axis] != type[axis]) call.fail(fmt::format("{}, where it ought to be {}", call.words(x, axis), describe(type[axis], x.tensor)));
  }
}

}  // namespace

void infer(Inference& call, const RopeArgs& args) {
  const Operand x = call.read("x", args.x), cos = call.read("cos", args.cos), sin = call.read("sin", args.sin);
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& table : {cos, sin}) call.require_whole(table, axis);
    if (x[axis] != partial_layout) require_whole_rows_of_heads(call, x, axis);
  }
  call.write(args.y, x.piece.type);
}

void infer(Inference& call, const AttentionArgs& args) {
  const AttentionTypes types = attention_types(call, call.read("q", args.q), call.read("k", args.k), call.read("v", args.v), args.lse);
  call.write(args.out, types.out);
  call.write(args.lse, types.lse);
}

void infer(Inference& call, const AttentionBackwardArgs& args) {
  const AttentionTypes types = attention_types(call, call.read("q", args.q), call.read("k", args.k), call.read("v", args.v), args.lse);
  require_type(call, call.read("out", args.out), types.out);
  require_type(call, call.read("dout", args.dout), types.out);
  require_type(call, call.read("lse", args.lse), types.lse);
  call.write(args.delta, types.lse);
  call.write(args.dq, types.out);
  call.write(args.dk, types.dkv);
  call.write(args.dv, types.dkv);
}

}  // namespace echelon
