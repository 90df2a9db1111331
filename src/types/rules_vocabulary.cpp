// Where the vocabulary is cut over ranks: a look-up in a part of the table gives addends, zeros but for the rank that
// has the row. Of a row of logits each rank has some columns: its maximum is a maximum of a part, its sum of
// exponentials an addend in the scale of that maximum.
#include "types/rules.h"

#include <fmt/format.h>

namespace echelon {
namespace {

constexpr int rows = 0, columns = 1;

/// Tokens and what belongs to their rows are cut alike; tokens that all stages have go with rows of this stage's own.
void require_same_rows(const Inference& call, const Operand& tokens, const Operand& of_rows, TypeAxis axis) {
  const bool tokens_are_cut = tokens[axis].held == Held::sharded, rows_are_cut = of_rows.is_cut_along(axis, rows);
  if (tokens_are_cut != rows_are_cut) call.fail_together(tokens, of_rows, axis);
}

/// The first token of a part of a sequence. Axes that cut the batch into whole sequences do not shift positions.
void require_first_token(const Inference& call, const Operand& x, std::int64_t first_token) {
  std::int64_t index = 0;
  for (const TypeAxis axis : {TypeAxis::cp, TypeAxis::tp, TypeAxis::kv_replica})
    if (x.is_cut_along(axis, rows)) index = index * call.ranks().degree(axis) + call.ranks().index(axis);
  const std::int64_t first = index * x.tensor.size(rows);
  if (first_token != first)
    call.fail(fmt::format("{} begins at token {}, but position {} is given", x.role, first, first_token));
}

/// What becomes of a type when it is added to a sum over all ranks: of what several ranks have alike, the first of them
/// adds it.
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

}  // namespace

void infer(Inference& call, const EmbeddingArgs& args) {
  const Operand tokens = call.read("tokens", args.tokens), w = call.read("w", args.w);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {tokens, w}) call.require_complete(x, axis);
    if (w.is_cut_along(axis, columns)) call.require_whole(w, axis);
    const bool both_are_cut = tokens[axis].held == Held::sharded && w[axis].held == Held::sharded;
    if (both_are_cut) call.fail_together(tokens, w, axis);
    y[axis] = w.is_cut_along(axis, rows) ? partial_layout : w[axis] == own_layout ? own_layout : tokens[axis];
  }
  call.require_position(w, rows, args.first_row);
  call.write(args.y, y);
}

void infer(Inference& call, const EmbeddingBackwardArgs& args) {
  const Operand tokens = call.read("tokens", args.tokens), dy = call.read("dy", args.dy);
  const NamedMemory* named = call.memory().named_at(args.dw);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) {
    const bool table_is_cut = named != nullptr && named->type[axis].held == Held::sharded;
    if (dy[axis] != partial_layout) require_same_rows(call, tokens, dy, axis);
    if (table_is_cut) call.require_whole(dy, axis);  // a rank adds what belongs to its rows, of all tokens
    dw[axis] = table_is_cut ? named->type[axis] : dy[axis].held == Held::sharded ? partial_layout : dy[axis];
  }
  if (named != nullptr) call.require_position({"dw", args.dw, {.type = named->type}}, rows, args.first_row);
  call.add_to("dw", args.dw, dw);
}

void infer(Inference& call, const PositionsArgs& args) {
  const Operand w = call.read("w", args.w), y = call.read("y", args.y);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    call.require_whole(w, axis);
  }
  require_first_token(call, y, args.first_token);
  call.write(args.y, y.piece.type);
}

void infer(Inference& call, const PositionsBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) dw[axis] = dy[axis].held == Held::sharded ? partial_layout : dy[axis];
  require_first_token(call, dy, args.first_token);
  call.add_to("dw", args.dw, dw);
}

void infer(Inference& call, const RowExpArgs& args) {
  const Operand logits = call.read("logits", args.logits), targets = call.read("targets", args.targets);
  LayoutType max, sum, target_logit;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(logits, axis);
    require_same_rows(call, targets, logits, axis);
    const bool is_cut = logits.is_cut_along(axis, columns);
    max[axis] = is_cut ? AxisLayout{Held::local_max} : logits[axis];
    sum[axis] = is_cut ? AxisLayout{Held::local_sum} : logits[axis];
    target_logit[axis] = is_cut ? partial_layout : logits[axis];
  }
  call.require_position(logits, columns, args.first_column);
  call.write(args.logits, logits.piece.type);
  call.write(args.max, max);
  call.write(args.sum, sum);
  call.write(args.target_logit, target_logit);
}

void infer(Inference& call, const RescaleSumsArgs& args) {
  const Operand sum = call.read("sum", args.sum), max = call.read("max", args.max),
                row_max = call.read("row_max", args.row_max);
  LayoutType type = sum.piece.type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(row_max, axis);
    const bool is_local = sum[axis].held == Held::local_sum && max[axis].held == Held::local_max;
    if (!is_local && sum[axis] != max[axis]) call.fail_together(sum, max, axis);
    if (is_local) type[axis] = partial_layout;
  }
  call.write(args.sum, type);
}

void infer(Inference& call, const CrossEntropyArgs& args) {
  const Operand max = call.read("max", args.max), sum = call.read("sum", args.sum),
                target_logit = call.read("target_logit", args.target_logit),
                targets = call.read("targets", args.targets);
  LayoutType lse, loss_sum;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {max, sum, target_logit}) {
      call.require_complete(x, axis);
      require_same_rows(call, targets, x, axis);
    }
    lse[axis] = sum[axis];
    loss_sum[axis] = sum[axis].held == Held::sharded ? partial_layout : sum[axis];
  }
  call.write(args.lse, lse);
  call.add_to("loss_sum", args.loss_sum, as_addend(call, sum, args.loss_sum, loss_sum));
}

void infer(Inference& call, const CrossEntropyBackwardArgs& args) {
  const Operand exps = call.read("exps", args.exps), max = call.read("max", args.max), lse = call.read("lse", args.lse),
                targets = call.read("targets", args.targets);
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {exps, lse}) call.require_complete(x, axis);
    for (const Operand& x : {exps, lse}) require_same_rows(call, targets, x, axis);
    // The exponentials are in the scale of the same rank's maximum.
    const bool is_local = exps.is_cut_along(axis, columns);
    if (is_local != (max[axis].held == Held::local_max)) call.fail_together(exps, max, axis);
  }
  if (args.loss_scale.exists()) call.require_the_same(call.read("loss_scale", args.loss_scale));
  call.require_position(exps, columns, args.first_column);
  call.write(args.dlogits, exps.piece.type);
}

}  // namespace echelon
