#include "ops/operations/rms_norm.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/norm_rule.h"
#include "ops/sample.h"

namespace echelon {
namespace {

/// The layout of a sum over the rows of x, whose columns may be on several ranks.
AxisLayout sum_of_columns(const Operand& x, TypeAxis axis) {
  return x.is_sharded_along(axis, dim_of_columns) ? partial_layout : with_rows_of(x[axis], x.tensor.size(-1), 1);
}

/// Of a row's part: the gain goes with its columns, and what is known of whole rows is the same on their ranks.
void require_part(const Inference& call, const Operand& x, const Operand& w, const Operand& of_rows, TypeAxis axis) {
  const bool is_cut = x.is_sharded_along(axis, dim_of_columns);
  if (is_cut ? !w.is_sharded_along(axis, 0) : w[axis].placement == TensorPlacement::sharded)
    call.fail_together(x, w, axis);
  call.require_complete(w, axis);
  const AxisLayout expected = is_cut ? replicated_layout : with_rows_of(x[axis], x.tensor.size(-1), 1);
  if (of_rows[axis] != expected && of_rows[axis] != partial_layout) call.fail_together(x, of_rows, axis);
}

void infer_part(Inference& call, const RmsNormArgs& args) {
  const Operand x = call.read("x", args.x), w = call.read("w", args.w), squares = call.read("squares", args.squares);
  LayoutType rstd;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(x, axis);
    call.require_complete(squares, axis);
    require_part(call, x, w, squares, axis);
    rstd[axis] = squares[axis];
  }
  call.write(args.y, x.piece.type);
  call.write(args.rstd, rstd);
}

// dx is linear in dy and in the products of dy: both may be addends.
void infer_part(Inference& call, const RmsNormBackwardInputArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x), w = call.read("w", args.w),
                rstd = call.read("rstd", args.rstd), products = call.read("products", args.products);
  LayoutType dx;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& kept : {x, rstd}) call.require_complete(kept, axis);
    require_part(call, x, w, rstd, axis);
    require_part(call, x, w, products, axis);
    const bool is_addend = dy[axis] == partial_layout && x[axis] == replicated_layout;
    if (is_addend != (products[axis] == partial_layout)) call.fail_together(dy, products, axis);
    dx[axis] = is_addend ? partial_layout : call.shared(dy, x, axis);
  }
  call.write(args.dx, dx);
}

/// Statistics of the rows of x, whatever ranks have of them.
void infer_part(Inference& call, const RmsNormBackwardWeightArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x), rstd = call.read("rstd", args.rstd);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& kept : {x, rstd}) call.require_complete(kept, axis);
    const bool is_addend = dy[axis] == partial_layout && x[axis] == replicated_layout;
    Operand product = dy;
    product.piece.type[axis] = is_addend ? partial_layout : call.shared(dy, x, axis);
    dw[axis] = sum_of_rows(call, product, axis);
  }
  call.add_to("dw", args.dw, dw);
}

/// Whether ranks have parts of the columns. The rows of the one head of a rank look the same, but are whole: only what
/// was summed over ranks is replicated.
bool has_parts(const Inference& call, const RmsNormBackwardWeightArgs& args) {
  const Operand x = call.read("x", args.x), rstd = call.read("rstd", args.rstd);
  for (const TypeAxis axis : call.axes())
    if (x.is_sharded_along(axis, dim_of_columns) && rstd[axis] == replicated_layout) return true;
  return false;
}

}  // namespace

void check(const RowProductsArgs& args) {
  const ArgumentChecker must("row_products");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.statistics("sums", args.sums, num_rows(args.x), args.x.dtype);
  if (!args.w.exists()) return;
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
}
OpCost cost(const RowProductsArgs& args) {
  return cost_by_rows(
      args.x, args.w.exists() ? 3 : 2,
      bytes_of(args.x, args.sums) + bytes_if(args.w) + (args.x.data == args.y.data ? 0 : bytes_of(args.y)));
}
Operands operands_of(const RowProductsArgs& args) {
  return {args.x.dtype, existing({args.x, args.y, args.w}), {args.sums}};
}
void infer(Inference& call, const RowProductsArgs& args) {
  const Operand x = call.read("x", args.x), y = call.read("y", args.y);
  LayoutType sums;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(y, axis);
    const bool is_addend = x[axis] == partial_layout && y[axis] == replicated_layout;
    if (!is_addend) (void)call.shared(x, y, axis);
    sums[axis] = is_addend ? partial_layout : sum_of_columns(y, axis);
  }
  call.write(args.sums, sums);
}
void sample(SampleOperands& s, RowProductsArgs& args) {
  args = {.x = s.rows(), .y = s.rows(), .sums = s.of_rows(), .w = s.x({s.n()})};
}
SampleSizes usual_sizes(const RowProductsArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const RmsNormArgs& args) {
  const ArgumentChecker must("rms_norm");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.residual.exists()) must.like("residual", args.residual, args.x);
  if (!args.squares.exists()) return;
  must.statistics("squares", args.squares, num_rows(args.x), args.x.dtype);
  must.that(args.width >= args.x.size(-1) && !args.residual.exists(), "squares", args.squares,
            "be of rows as wide as x, without a residual");
}
// Sum of squares 2, normalise 1, weight 1.
OpCost cost(const RmsNormArgs& args) {
  const std::int64_t with_residual = args.residual.exists() ? 1 : 0;
  return cost_by_rows(
      args.x, 4 + with_residual,
      bytes_of(args.x, args.w, args.y, args.rstd) + with_residual * 2 * bytes_of(args.x) + bytes_if(args.squares));
}
Operands operands_of(const RmsNormArgs& args) {
  return {args.x.dtype, existing({args.x, args.w, args.residual, args.squares}), {args.y, args.rstd}};
}
void infer(Inference& call, const RmsNormArgs& args) {
  if (args.squares.exists()) return infer_part(call, args);
  add_residual(call, args.x, args.residual);
  const NormRule rule(call, args.x, args.w);
  rule.write_rows(args.y);
  rule.write_statistics(args.rstd);
}
void sample(SampleOperands& s, RmsNormArgs& args) {
  args = {.x = s.rows(), .w = s.x({s.n()}), .y = s.rows(), .rstd = s.of_rows(), .residual = s.rows()};
}
SampleSizes usual_sizes(const RmsNormArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const RmsNormBackwardInputArgs& args) {
  const ArgumentChecker must("rms_norm_backward_input");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.dresidual.exists()) must.like("dresidual", args.dresidual, args.x);
  if (args.products.exists()) must.statistics("products", args.products, num_rows(args.x), args.x.dtype);
}
// xhat 1, g = dy w 1, sum of g xhat 2, dx = rstd (g - xhat mean) 3.
OpCost cost(const RmsNormBackwardInputArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return cost_by_rows(args.x, 7 + with_residual,
                      bytes_of(args.dy, args.x, args.w, args.rstd, args.dx) + with_residual * bytes_of(args.x) +
                          bytes_if(args.products));
}
Operands operands_of(const RmsNormBackwardInputArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.rstd, args.dresidual, args.products}), {args.dx}};
}
void infer(Inference& call, const RmsNormBackwardInputArgs& args) {
  if (args.products.exists()) return infer_part(call, args);
  const NormRule rule(call, args.x, args.w);
  rule.require_statistics("rstd", args.rstd);
  rule.write_input_gradient(call.read("dy", args.dy), args.dx, args.dresidual);
}
void sample(SampleOperands& s, RmsNormBackwardInputArgs& args) {
  args = {.dy = s.rows(), .x = s.rows(), .w = s.x({s.n()}), .rstd = s.of_rows(), .dx = s.rows(), .dresidual = s.rows()};
}
SampleSizes usual_sizes(const RmsNormBackwardInputArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const RmsNormBackwardWeightArgs& args) {
  const ArgumentChecker must("rms_norm_backward_weight");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.count("dw", args.dw, num_columns(args.x));
  must.gradient("dw", args.dw, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
}
// xhat 1, dw 2.
OpCost cost(const RmsNormBackwardWeightArgs& args) {
  return cost_by_rows(args.x, 3, bytes_of(args.dy, args.x, args.rstd) + 2 * bytes_of(args.dw));
}
Operands operands_of(const RmsNormBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.rstd, args.dw}, {}};
}
void infer(Inference& call, const RmsNormBackwardWeightArgs& args) {
  if (has_parts(call, args)) return infer_part(call, args);
  const NormRule rule(call, args.x, {});
  rule.require_statistics("rstd", args.rstd);
  rule.add_weight_gradient(call.read("dy", args.dy), "dw", args.dw);
}
void sample(SampleOperands& s, RmsNormBackwardWeightArgs& args) {
  args = {.dy = s.rows(), .x = s.rows(), .rstd = s.of_rows(), .dw = s.sums({s.n()})};
}
SampleSizes usual_sizes(const RmsNormBackwardWeightArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const RmsNormBackwardArgs& args) {
  check(RmsNormBackwardInputArgs{
      .dy = args.dy, .x = args.x, .w = args.w, .rstd = args.rstd, .dx = args.dx, .dresidual = args.dresidual});
  check(RmsNormBackwardWeightArgs{.dy = args.dy, .x = args.x, .rstd = args.rstd, .dw = args.dw});
}
OpCost cost(const RmsNormBackwardArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return cost_by_rows(
      args.x, 9 + with_residual,
      bytes_of(args.dy, args.x, args.w, args.rstd, args.dx) + 2 * bytes_of(args.dw) + with_residual * bytes_of(args.x));
}
Operands operands_of(const RmsNormBackwardArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.rstd, args.dw, args.dresidual}), {args.dx}};
}
void infer(Inference& call, const RmsNormBackwardArgs& args) {
  infer(call, RmsNormBackwardWeightArgs{args.dy, args.x, args.rstd, args.dw});
  infer(call, RmsNormBackwardInputArgs{args.dy, args.x, args.w, args.rstd, args.dx, args.dresidual});
}
void sample(SampleOperands& s, RmsNormBackwardArgs& args) {
  args = {.dy = s.rows(),
          .x = s.rows(),
          .w = s.x({s.n()}),
          .rstd = s.of_rows(),
          .dx = s.rows(),
          .dw = s.sums({s.n()}),
          .dresidual = s.rows()};
}
SampleSizes usual_sizes(const RmsNormBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

}  // namespace echelon
