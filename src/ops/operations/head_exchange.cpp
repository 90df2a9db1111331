#include "ops/operations/head_exchange.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

/// `by_token` [N, P, W], `by_receiver` [P copies, N, W].
void check_heads(const ArgumentChecker& must, const Tensor& by_token, const Tensor& by_receiver, std::int64_t copies) {
  must.dims("the heads of tokens", by_token, 3);
  must.computes("the heads of tokens", by_token);
  must.dims("the heads of receivers", by_receiver, 3);
  must.dtype("the heads of receivers", by_receiver, by_token.dtype);
  must.that(copies >= 1 && by_receiver.size(0) == by_token.size(1) * copies, "the heads of receivers", by_receiver,
            "have `copies` blocks for each part of a token");
  must.that(by_receiver.size(1) == by_token.size(0) && by_receiver.size(2) == by_token.size(2),
            "the heads of receivers", by_receiver, "have a row for each token");
}

/// Heads of a token on different ranks remain the columns of each block, and tokens its rows. `from` and `to`: the
/// widths of a row before and after.
AxisLayout with_heads_of(const Inference& call, const Operand& x, TypeAxis axis, std::int64_t from, std::int64_t to) {
  AxisLayout layout = x[axis];
  if (layout.placement != TensorPlacement::sharded && layout.placement != TensorPlacement::addends_of_parts)
    return layout;
  if (layout.block == outermost) return layout;
  if (layout.block != from) call.require_whole(x, axis);
  layout.block = to;
  return layout;
}

}  // namespace

void check(const SplitHeadsArgs& args) { check_heads(ArgumentChecker("split_heads"), args.x, args.y, args.copies); }
OpCost cost(const SplitHeadsArgs& args) { return cost_by_rows(args.y, 0, bytes_of(args.x, args.y)); }
Operands operands_of(const SplitHeadsArgs& args) { return {args.x.dtype, {args.x}, {args.y}}; }
// The receivers are the ranks that exchange heads.
void infer(Inference& call, const SplitHeadsArgs& args) {
  const Operand x = call.read("x", args.x);
  const std::int64_t W = args.x.size(2);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) y[axis] = with_heads_of(call, x, axis, args.x.size(1) * W, W);
  if (args.copies > 1) y[TypeAxis::cp_heads].copies = static_cast<int>(args.copies);
  call.write(args.y, y);
}
void sample(SampleOperands& s, SplitHeadsArgs& args) {
  args = {.x = s.x({s.m(), 1, s.n()}), .y = s.x({1, s.m(), s.n()})};
}
SampleSizes usual_sizes(const SplitHeadsArgs& /*args*/) { return {}; }

void check(const JoinHeadsArgs& args) { check_heads(ArgumentChecker("join_heads"), args.y, args.x, args.copies); }
OpCost cost(const JoinHeadsArgs& args) {
  return cost_by_rows(args.x, args.copies > 1 ? 1 : 0, bytes_of(args.x, args.y));
}
Operands operands_of(const JoinHeadsArgs& args) { return {args.x.dtype, {args.x}, {args.y}}; }
// Of heads that several ranks have, each computed an addend. They are complete when all of them were added.
void infer(Inference& call, const JoinHeadsArgs& args) {
  const Operand x = call.read("x", args.x);
  const std::int64_t W = args.x.size(2);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    y[axis] = with_heads_of(call, x, axis, W, args.y.size(1) * W);
    const int copies = axis == TypeAxis::cp_heads ? static_cast<int>(args.copies) : 1;
    if (x[axis].copies != copies)
      call.fail(fmt::format("{}, but {} of {} ranks are added", call.words(x, axis), copies, x[axis].copies));
    y[axis].copies = 1;
    if (y[axis].placement == TensorPlacement::addends_of_parts) y[axis].placement = TensorPlacement::sharded;
  }
  call.write(args.y, y);
}
void sample(SampleOperands& s, JoinHeadsArgs& args) {
  args = {.x = s.x({1, s.m(), s.n()}), .y = s.x({s.m(), 1, s.n()})};
}
SampleSizes usual_sizes(const JoinHeadsArgs& /*args*/) { return {}; }

void check(const GatherRowsArgs& args) {
  const ArgumentChecker must("gather_rows");
  must.dims("x", args.x, 2);
  must.computes("x", args.x);
  must.dims("y", args.y, 2);
  must.dtype("y", args.y, args.x.dtype);
  must.dtype("index", args.index, DType::int32);
  must.count("index", args.index, args.y.size(0));
  must.that(args.y.size(1) == args.x.size(1), "y", args.y, "have rows as wide as those of x");
}
OpCost cost(const GatherRowsArgs& args) { return cost_by_rows(args.y, 0, 2 * bytes_of(args.y) + bytes_of(args.index)); }
Operands operands_of(const GatherRowsArgs& args) { return {args.x.dtype, {args.x, args.index}, {args.y}}; }
// Rows only move. Where each rank has rows of its own, it has their index. They are put in ascending order, or back
// into that of the ranks' lists.
void infer(Inference& call, const GatherRowsArgs& args) {
  const Operand x = call.read("x", args.x), index = call.read("the index of rows", args.index);
  LayoutType y = x.piece.type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(index, axis);
    const bool rows_are_cut = x.is_sharded_along(axis, dim_of_rows),
               index_is_cut = index[axis].placement == TensorPlacement::sharded;
    if (rows_are_cut != index_is_cut) call.fail_together(index, x, axis);
    if (axis != call.ranks().gathered_rows_axis()) continue;
    const bool are_by_rank = x[axis].order == RowOrder::by_rank;
    if (x[axis].order != index[axis].order)
      call.fail(fmt::format("{}, but the index takes rows {}", call.words(x, axis),
                            are_by_rank ? "in ascending order" : "rank after rank"));
    y[axis].order = are_by_rank ? RowOrder::ascending : RowOrder::by_rank;
  }
  call.write(args.y, y);
}
void sample(SampleOperands& s, GatherRowsArgs& args) {
  args = {.x = s.rows(), .index = s.integers({s.m()}, [](std::int64_t i) { return i; }), .y = s.rows()};
}
SampleSizes usual_sizes(const GatherRowsArgs& /*args*/) { return {}; }

}  // namespace echelon
