#include "ops/operations/mixture/grouped_matmul.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/mixture/expert_rows.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

/// Offsets count the rows of the same tokens: they are each rank's own where tokens are sharded.
void require_count_of(const Inference& call, const Operand& offsets, const Operand& rows, TypeAxis axis) {
  const bool are_own =
      rows.is_sharded_along(axis, 0) || rows[axis] == own_layout || rows[axis].placement == TensorPlacement::dispatched;
  if ((offsets[axis] == own_layout) != are_own) call.fail_together(offsets, rows, axis);
}

/// Rows that have come to the ranks of their experts, times these. Where a rank has some features alone, these are
/// columns of w, or of a and rows of w.
AxisLayout product_at_experts(const Inference& call, const GroupedMatmulArgs& args, const Operand& a, const Operand& w,
                              TypeAxis axis) {
  const int inner = args.transpose_w ? 2 : 1, outer = args.transpose_w ? 1 : 2;
  const bool are_experts =
      a[axis].placement == TensorPlacement::dispatched && w[axis].placement == TensorPlacement::experts;
  const AxisLayout whole = {TensorPlacement::dispatched, outermost};
  if (are_experts && w[axis].block == outermost && a[axis] == whole) return whole;
  if (are_experts && w[axis].block == block_from(args.w.sizes, outer) && a[axis] == whole)
    return {TensorPlacement::dispatched, args.c.size(1)};
  if (are_experts && w[axis].block == block_from(args.w.sizes, inner) && has_features(a[axis], args.a.size(1)))
    return dispatched_addends_layout;
  call.fail_together(a, w, axis);
}

/// Of the tokens of one expert group: other groups have other tokens for the same experts.
AxisLayout gradient_of_experts(const Inference& call, const Operand& dy, const Operand& x, const Tensor& dw,
                               TypeAxis axis) {
  const bool of_rows = dy[axis].block != outermost, of_columns = x[axis].block != outermost;
  if (of_rows && of_columns) call.fail_together(dy, x, axis);
  return {call.ranks().expert_holders().size > 1 ? TensorPlacement::expert_addends : TensorPlacement::experts,
          of_rows      ? block_from(dw.sizes, 1)
          : of_columns ? block_from(dw.sizes, 2)
                       : outermost};
}

std::int64_t planned_rows(std::int64_t expected, const Tensor& rows) { return expected < 0 ? rows.size(0) : expected; }
/// Of the rows that experts have.
std::int64_t planned_bytes(std::int64_t num_rows, const Tensor& rows) {
  return num_rows * rows.size(1) * size_of(rows.dtype);
}

/// From a few rows of each expert to some hundred.
std::vector<std::int64_t> usual_rows() { return {32, 256, 2048}; }
std::vector<std::int64_t> usual_widths() { return {64, 256, 1024}; }

}  // namespace

void check(const GroupedMatmulArgs& args) {
  const ArgumentChecker must("grouped_matmul");
  must.dims("a", args.a, 2);
  must.dims("w", args.w, 3);
  must.dims("c", args.c, 2);
  must.computes("a", args.a);
  must.dtype("w", args.w, args.a.dtype);
  must.dtype("c", args.c, args.a.dtype);
  check_offsets(must, args.offsets);
  must.that(args.w.size(0) == args.offsets.size(0) - 1, "w", args.w, "have a matrix for each expert");
  must.that(args.w.size(args.transpose_w ? 2 : 1) == args.a.size(1), "w", args.w, "share the inner size with a");
  must.that(args.c.sizes == Sizes{args.a.size(0), args.w.size(args.transpose_w ? 1 : 2)}, "c", args.c,
            "have a's rows and w's outer size");
}
OpCost cost(const GroupedMatmulArgs& args) {
  const std::int64_t m = planned_rows(args.expected_rows, args.c), n = args.c.size(1), k = args.a.size(1);
  return {.m = m,
          .n = n,
          .k = k,
          .flops = 2 * m * n * k,
          .bytes = planned_bytes(m, args.a) + bytes_of(args.w, args.offsets) +
                   (args.accumulates ? 2 : 1) * planned_bytes(m, args.c)};
}
Operands operands_of(const GroupedMatmulArgs& args) {
  if (args.accumulates) return {args.a.dtype, {args.a, args.w, args.offsets, args.c}, {}};
  return {args.a.dtype, {args.a, args.w, args.offsets}, {args.c}};
}
void infer(Inference& call, const GroupedMatmulArgs& args) {
  const Operand a = call.read("a", args.a), w = call.read("w", args.w), offsets = call.read("offsets", args.offsets);
  LayoutType c;
  for (const TypeAxis axis : call.axes()) {
    require_count_of(call, offsets, a, axis);
    if (a[axis].placement == TensorPlacement::dispatched || w[axis].placement == TensorPlacement::experts) {
      c[axis] = product_at_experts(call, args, a, w, axis);
      continue;
    }
    if (w.is_sharded_along(axis, 0)) call.require_whole(w, axis);
    c[axis] = product(call, axis, {a, 1, 0}, {w, args.transpose_w ? 2 : 1, args.transpose_w ? 1 : 2}, args.c);
  }
  args.accumulates ? call.add_to("c", args.c, c) : call.write(args.c, c);
}
void sample(SampleOperands& s, GroupedMatmulArgs& args) {
  args = {.a = s.x({s.m(), s.k()}),
          .w = s.x({num_sample_experts, s.n(), s.k()}),
          .offsets = sample_offsets(s, s.m()),
          .c = s.rows(),
          .transpose_w = true};
}
SampleSizes usual_sizes(const GroupedMatmulArgs& /*args*/) {
  return {.m = usual_rows(), .n = usual_widths(), .k = usual_widths()};
}

void check(const GroupedMatmulBackwardWeightArgs& args) {
  const ArgumentChecker must("grouped_matmul_backward_weight");
  must.dims("dy", args.dy, 2);
  must.dims("x", args.x, 2);
  must.computes("dy", args.dy);
  must.dtype("x", args.x, args.dy.dtype);
  must.that(args.x.size(0) == args.dy.size(0), "x", args.x, "have dy's rows");
  check_offsets(must, args.offsets);
  must.gradient("dw", args.dw, args.dy.dtype);
  must.that(args.dw.sizes == Sizes{args.offsets.size(0) - 1, args.dy.size(1), args.x.size(1)}, "dw", args.dw,
            "be [experts, dy's width, x's width]");
}
OpCost cost(const GroupedMatmulBackwardWeightArgs& args) {
  const std::int64_t m = args.dy.size(1), n = args.x.size(1), k = planned_rows(args.expected_rows, args.x);
  return {
      .m = m,
      .n = n,
      .k = k,
      .flops = 2 * m * n * k,
      .bytes = planned_bytes(k, args.dy) + planned_bytes(k, args.x) + bytes_of(args.offsets) + 2 * bytes_of(args.dw)};
}
Operands operands_of(const GroupedMatmulBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.offsets, args.dw}, {}};
}
void infer(Inference& call, const GroupedMatmulBackwardWeightArgs& args) {
  const Operand dy = call.read("dy", args.dy), x = call.read("x", args.x), offsets = call.read("offsets", args.offsets);
  LayoutType dw;
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& rows : {dy, x}) require_count_of(call, offsets, rows, axis);
    if (dy[axis].placement == TensorPlacement::dispatched && x[axis].placement == TensorPlacement::dispatched) {
      dw[axis] = gradient_of_experts(call, dy, x, args.dw, axis);
      continue;
    }
    dw[axis] = product(call, axis, {dy, 0, 1}, {x, 0, 1}, args.dw);
  }
  call.add_to("dw", args.dw, dw);
}
void sample(SampleOperands& s, GroupedMatmulBackwardWeightArgs& args) {
  args = {.dy = s.x({s.k(), s.m()}),
          .x = s.x({s.k(), s.n()}),
          .offsets = sample_offsets(s, s.k()),
          .dw = s.sums({num_sample_experts, s.m(), s.n()})};
}
SampleSizes usual_sizes(const GroupedMatmulBackwardWeightArgs& /*args*/) {
  return {.m = usual_widths(), .n = usual_widths(), .k = usual_rows()};
}

}  // namespace echelon
