#include "ops/operations/embedding.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

#include <algorithm>

namespace echelon {
namespace {

void check_lookup(const ArgumentChecker& must, const Tensor& tokens, const Tensor& table, const Tensor& y) {
  must.dims("table", table, 2);
  must.dtype("tokens", tokens, DType::int32);
  must.matrix("y", y);
  must.count("y", y, tokens.num_elements() * table.size(1));
}

/// Args: of a sum with learned positions or of its gradient, y being what has a row for each token.
template <class Args>
void check_positions(const ArgumentChecker& must, const Args& args, const Tensor& table, const Tensor& y) {
  must.dims("table", table, 2);
  must.matrix("y", y);
  must.that(num_columns(y) == table.size(1), "y", y, "have rows of the table's width");
  must.that(args.seq_len >= 1 && args.seq_len <= table.size(0), "table", table, "have a row for every position");
  if (!args.positions.exists()) return;
  must.dtype("positions", args.positions, DType::int32);
  must.that(args.first_token >= 0 && args.first_token + num_rows(y) <= args.positions.num_elements(), "positions",
            args.positions, "have one for every row");
}

constexpr std::int64_t sample_table_rows = 512;
std::int64_t sample_seq_len(const SampleOperands& s) { return std::min<std::int64_t>(s.m(), 256); }

/// Fails unless x starts at `first_token` of its sequence. Axes that divide the batch into whole sequences do not shift
/// positions.
void require_first_token(const Inference& call, const Operand& x, std::int64_t first_token, const Tensor& positions) {
  std::int64_t index = 0;
  if (positions.exists()) {
    const Operand given = call.read("positions", positions);
    for (const TypeAxis axis : call.axes())
      if (axis == TypeAxis::tp || axis == TypeAxis::kv_replica)
        call.require_whole(given, axis);
      else
        require_same_rows(call, given, x, axis);
  }
  for (const TypeAxis axis : {TypeAxis::cp, TypeAxis::cp_heads, TypeAxis::tp, TypeAxis::kv_replica})
    if ((!is_of_context(axis) || !positions.exists()) && x.is_sharded_along(axis, dim_of_rows))
      index = index * call.ranks().degree(axis) + call.ranks().index(axis);
  const std::int64_t first = index * x.tensor.size(dim_of_rows);
  if (first_token != first)
    call.fail(fmt::format("{} starts at token {}, but position {} is given", x.role, first, first_token));
}

}  // namespace

void check(const EmbeddingArgs& args) {
  const ArgumentChecker must("embedding");
  check_lookup(must, args.tokens, args.w, args.y);
  must.dtype("w", args.w, args.y.dtype);
}
// Only the rows of the table that are looked up are touched: as many bytes as y.
OpCost cost(const EmbeddingArgs& args) { return cost_by_rows(args.y, 0, bytes_of(args.tokens, args.y, args.y)); }
Operands operands_of(const EmbeddingArgs& args) { return {args.y.dtype, {args.tokens, args.w}, {args.y}}; }
// A look-up in a part of the table gives addends: zeros on all ranks but the one that has the row.
void infer(Inference& call, const EmbeddingArgs& args) {
  const Operand tokens = call.read("tokens", args.tokens), w = call.read("w", args.w);
  LayoutType y;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {tokens, w}) call.require_complete(x, axis);
    if (w.is_sharded_along(axis, dim_of_columns)) call.require_whole(w, axis);
    const bool both_are_cut =
        tokens[axis].placement == TensorPlacement::sharded && w[axis].placement == TensorPlacement::sharded;
    if (both_are_cut) call.fail_together(tokens, w, axis);
    y[axis] = w.is_sharded_along(axis, dim_of_rows) ? partial_layout
              : w[axis] == own_layout               ? own_layout
                                                    : tokens[axis];
  }
  call.require_position(w, dim_of_rows, args.first_row);
  call.write(args.y, y);
}
void sample(SampleOperands& s, EmbeddingArgs& args) {
  args = {.tokens = s.tokens(sample_table_rows), .w = s.x({sample_table_rows, s.n()}), .y = s.rows()};
}
SampleSizes usual_sizes(const EmbeddingArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const EmbeddingBackwardArgs& args) {
  const ArgumentChecker must("embedding_backward");
  check_lookup(must, args.tokens, args.dw, args.dy);
  must.gradient("dw", args.dw, args.dy.dtype);
}
OpCost cost(const EmbeddingBackwardArgs& args) {
  const std::int64_t touched = args.dy.num_elements() * size_of(args.dw.dtype);
  return cost_by_rows(args.dy, 1, bytes_of(args.tokens, args.dy) + 2 * touched);
}
Operands operands_of(const EmbeddingBackwardArgs& args) { return {args.dy.dtype, {args.tokens, args.dy, args.dw}, {}}; }
void infer(Inference& call, const EmbeddingBackwardArgs& args) {
  const Operand tokens = call.read("tokens", args.tokens), dy = call.read("dy", args.dy);
  const NamedMemory* named = call.memory().named_at(args.dw);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) {
    const bool table_is_cut = named != nullptr && named->type[axis].placement == TensorPlacement::sharded;
    if (dy[axis] != partial_layout) require_same_rows(call, tokens, dy, axis);
    if (table_is_cut) call.require_whole(dy, axis);  // a rank adds what belongs to its rows, of all tokens
    dw[axis] = table_is_cut                                     ? named->type[axis]
               : dy[axis].placement == TensorPlacement::sharded ? partial_layout
                                                                : dy[axis];
  }
  if (named != nullptr) call.require_position({"dw", args.dw, {.type = named->type}}, dim_of_rows, args.first_row);
  call.add_to("dw", args.dw, dw);
}
void sample(SampleOperands& s, EmbeddingBackwardArgs& args) {
  args = {.tokens = s.tokens(sample_table_rows), .dy = s.rows(), .dw = s.sums({sample_table_rows, s.n()})};
}
SampleSizes usual_sizes(const EmbeddingBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const PositionsArgs& args) {
  const ArgumentChecker must("add_positions");
  check_positions(must, args, args.w, args.y);
  must.dtype("w", args.w, args.y.dtype);
}
OpCost cost(const PositionsArgs& args) {
  const std::int64_t table = args.seq_len * args.w.size(1) * size_of(args.w.dtype);
  return cost_by_rows(args.y, 1, 2 * bytes_of(args.y) + table + bytes_if(args.positions));
}
Operands operands_of(const PositionsArgs& args) {
  return {args.y.dtype, existing({args.w, args.y, args.positions}), {}};
}
void infer(Inference& call, const PositionsArgs& args) {
  const Operand w = call.read("w", args.w), y = call.read("y", args.y);
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    call.require_whole(w, axis);
  }
  require_first_token(call, y, args.first_token, args.positions);
  call.write(args.y, y.piece.type);
}
void sample(SampleOperands& s, PositionsArgs& args) {
  const std::int64_t T = sample_seq_len(s);
  args = {.w = s.x({T, s.n()}), .y = s.rows(), .seq_len = T};
}
SampleSizes usual_sizes(const PositionsArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const PositionsBackwardArgs& args) {
  const ArgumentChecker must("positions_backward");
  check_positions(must, args, args.dw, args.dy);
  must.gradient("dw", args.dw, args.dy.dtype);
}
OpCost cost(const PositionsBackwardArgs& args) {
  const std::int64_t table = args.seq_len * args.dw.size(1) * size_of(args.dw.dtype);
  return cost_by_rows(args.dy, 1, bytes_of(args.dy) + 2 * table + bytes_if(args.positions));
}
Operands operands_of(const PositionsBackwardArgs& args) {
  return {args.dy.dtype, existing({args.dy, args.dw, args.positions}), {}};
}
void infer(Inference& call, const PositionsBackwardArgs& args) {
  const Operand dy = call.read("dy", args.dy);
  LayoutType dw;
  for (const TypeAxis axis : call.axes())
    dw[axis] = dy[axis].placement == TensorPlacement::sharded ? partial_layout : dy[axis];
  require_first_token(call, dy, args.first_token, args.positions);
  call.add_to("dw", args.dw, dw);
}
void sample(SampleOperands& s, PositionsBackwardArgs& args) {
  const std::int64_t T = sample_seq_len(s);
  args = {.dy = s.rows(), .dw = s.sums({T, s.n()}), .seq_len = T};
}
SampleSizes usual_sizes(const PositionsBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

}  // namespace echelon
