// Attention mixes positions and keeps sequences and heads apart: a rank needs all positions of some heads of some
// sequences. Where it has only some of a kv head's query heads (k, v replicated, q sharded along its heads), its dk and
// dv are addends.
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

AttentionTypes attention_types(const Inference& call, const Operand& q, const Operand& k, const Operand& v,
                               const Tensor& lse) {
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

/// Where documents begin is known of the sequences that a rank has, and of all their positions.
void require_starts_of(const Inference& call, const Operand& q, const AttentionMask& mask) {
  if (!mask.starts.exists()) return;
  const Operand starts = call.read("starts", mask.starts);
  for (const TypeAxis axis : call.axes()) {
    const bool both_are_cut = q.is_cut_along(axis, sequences) && starts.is_cut_along(axis, sequences);
    if (!both_are_cut) call.require_whole(starts, axis);
    if (!both_are_cut && q.is_cut_along(axis, sequences)) call.fail_together(starts, q, axis);
  }
}

void require_type(const Inference& call, const Operand& x, const LayoutType& type) {
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    if (x[axis] != type[axis])
      call.fail(fmt::format("{}, where it ought to be {}", call.words(x, axis), describe(type[axis], x.tensor)));
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
  const Operand q = call.read("q", args.q);
  const AttentionTypes types = attention_types(call, q, call.read("k", args.k), call.read("v", args.v), args.lse);
  require_starts_of(call, q, args.mask);
  call.write(args.out, types.out);
  call.write(args.lse, types.lse);
}

void infer(Inference& call, const AttentionBackwardArgs& args) {
  const Operand q = call.read("q", args.q);
  const AttentionTypes types = attention_types(call, q, call.read("k", args.k), call.read("v", args.v), args.lse);
  require_starts_of(call, q, args.mask);
  require_type(call, call.read("out", args.out), types.out);
  require_type(call, call.read("dout", args.dout), types.out);
  require_type(call, call.read("lse", args.lse), types.lse);
  call.write(args.delta, types.lse);
  call.write(args.dq, types.out);
  call.write(args.dk, types.dkv);
  call.write(args.dv, types.dkv);
}

// Row by row, where a row of lse lies as its row of out does.
void infer(Inference& call, const MergeAttentionArgs& args) {
  const Operand out = call.read("out", args.out), lse = call.read("lse", args.lse), part = call.read("part", args.part);
  for (const TypeAxis axis : call.axes()) {
    require_whole_rows_of_heads(call, out, axis);
    if (part[axis] != out[axis]) call.fail_together(part, out, axis);
  }
  require_type(call, call.read("part_lse", args.part_lse), lse.piece.type);
  call.write(args.out, out.piece.type);
  call.write(args.lse, lse.piece.type);
}

}  // namespace echelon
