#include "ops/operations/cross_entropy.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/sample.h"
#include "types/rules.h"

namespace echelon {
namespace {

void check_logits(const ArgumentChecker& must, const Tensor& logits, std::int64_t valid_columns) {
  must.dims("logits", logits, 2);
  must.computes("logits", logits);
  must.that(valid_columns >= 0 && valid_columns <= logits.size(1), "logits", logits,
            "have at least valid_columns columns");
}

void check_rows(const ArgumentChecker& must, const Tensor& logits, std::string_view name, const Tensor& t) {
  must.statistics(name, t, logits.size(0), logits.dtype);
}

void check_targets(const ArgumentChecker& must, const Tensor& targets, std::int64_t rows) {
  must.count("targets", targets, rows);
  must.dtype("targets", targets, DType::int32);
}

SampleSizes usual_sizes_of_logits() { return {.m = {32, 256}, .n = {512, 4096, 32768}}; }

SampleSizes usual_sizes_of_statistics() {
  SampleSizes sizes = usual_sizes_of_elements();
  sizes.has_activations = false;
  return sizes;
}

}  // namespace

void check(const RowExpArgs& args) {
  const ArgumentChecker must("row_exp");
  check_logits(must, args.logits, args.valid_columns);
  check_rows(must, args.logits, "max", args.max);
  check_rows(must, args.logits, "sum", args.sum);
  check_rows(must, args.logits, "target_logit", args.target_logit);
  check_targets(must, args.targets, args.logits.size(0));
}
// Maximum 1, exp(x - max) 2, sum 1. Logits of 16 bits are not written.
OpCost cost(const RowExpArgs& args) {
  const std::int64_t times = is_half_dtype(args.logits.dtype) ? 1 : 2;
  return cost_by_rows(args.logits, 4,
                      times * bytes_of(args.logits) + bytes_of(args.targets, args.max, args.sum, args.target_logit));
}
Operands operands_of(const RowExpArgs& args) {
  return {args.logits.dtype, {args.logits, args.targets}, {args.max, args.sum, args.target_logit}};
}
// Where each rank has some columns of a row of logits, its maximum is a maximum of a part, and its sum of exponentials
// an addend in the scale of that maximum.
void infer(Inference& call, const RowExpArgs& args) {
  const Operand logits = call.read("logits", args.logits), targets = call.read("targets", args.targets);
  LayoutType max, sum, target_logit;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(logits, axis);
    require_same_rows(call, targets, logits, axis);
    const bool is_cut = logits.is_sharded_along(axis, dim_of_columns);
    max[axis] = is_cut ? AxisLayout{TensorPlacement::local_max} : logits[axis];
    sum[axis] = is_cut ? AxisLayout{TensorPlacement::local_sum} : logits[axis];
    target_logit[axis] = is_cut ? partial_layout : logits[axis];
  }
  call.require_position(logits, dim_of_columns, args.first_column);
  call.write(args.logits, logits.piece.type);
  call.write(args.max, max);
  call.write(args.sum, sum);
  call.write(args.target_logit, target_logit);
}
void sample(SampleOperands& s, RowExpArgs& args) {
  args = {.logits = s.rows(),
          .targets = s.tokens(s.n()),
          .max = s.of_rows(),
          .sum = s.of_rows(),
          .target_logit = s.of_rows(),
          .valid_columns = s.n()};
}
SampleSizes usual_sizes(const RowExpArgs& /*args*/) { return usual_sizes_of_logits(); }

void check(const RescaleSumsArgs& args) {
  const ArgumentChecker must("rescale_sums");
  must.that(args.sum.dtype == DType::float32 || args.sum.dtype == DType::float64, "sum", args.sum,
            "be float32 or float64");
  must.like("max", args.max, args.sum);
  must.like("row_max", args.row_max, args.sum);
}
OpCost cost(const RescaleSumsArgs& args) {
  return cost_by_elements(args.sum, 3, 2 * bytes_of(args.sum) + bytes_of(args.max, args.row_max));
}
Operands operands_of(const RescaleSumsArgs& args) { return {args.sum.dtype, {args.sum, args.max, args.row_max}, {}}; }
void infer(Inference& call, const RescaleSumsArgs& args) {
  const Operand sum = call.read("sum", args.sum), max = call.read("max", args.max),
                row_max = call.read("row_max", args.row_max);
  LayoutType type = sum.piece.type;
  for (const TypeAxis axis : call.axes()) {
    call.require_complete(row_max, axis);
    const bool is_local =
        sum[axis].placement == TensorPlacement::local_sum && max[axis].placement == TensorPlacement::local_max;
    if (!is_local && sum[axis] != max[axis]) call.fail_together(sum, max, axis);
    if (is_local) type[axis] = partial_layout;
  }
  call.write(args.sum, type);
}
void sample(SampleOperands& s, RescaleSumsArgs& args) {
  args = {.sum = s.of_rows(), .max = s.of_rows(), .row_max = s.of_rows()};
}
SampleSizes usual_sizes(const RescaleSumsArgs& /*args*/) { return usual_sizes_of_statistics(); }

void check(const CrossEntropyArgs& args) {
  const ArgumentChecker must("cross_entropy");
  must.that(args.max.dtype == DType::float32 || args.max.dtype == DType::float64, "max", args.max,
            "be float32 or float64");
  must.like("sum", args.sum, args.max);
  must.like("target_logit", args.target_logit, args.max);
  must.like("lse", args.lse, args.max);
  check_targets(must, args.targets, args.max.num_elements());
  must.scalars("loss_sum", args.loss_sum, 1);
}
OpCost cost(const CrossEntropyArgs& args) {
  return cost_by_elements(
      args.max, 4,
      bytes_of(args.max, args.sum, args.target_logit, args.targets, args.lse) + 2 * bytes_of(args.loss_sum));
}
Operands operands_of(const CrossEntropyArgs& args) {
  return {args.max.dtype, {args.max, args.sum, args.target_logit, args.targets, args.loss_sum}, {args.lse}};
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
    loss_sum[axis] = sum[axis].placement == TensorPlacement::sharded ? partial_layout : sum[axis];
  }
  call.write(args.lse, lse);
  call.add_to("loss_sum", args.loss_sum, as_addend(call, sum, args.loss_sum, loss_sum));
}
void sample(SampleOperands& s, CrossEntropyArgs& args) {
  args = {.max = s.of_rows(),
          .sum = s.of_rows(),
          .target_logit = s.of_rows(),
          .targets = s.tokens(1),
          .lse = s.of_rows(),
          .loss_sum = s.scalar()};
}
SampleSizes usual_sizes(const CrossEntropyArgs& /*args*/) { return usual_sizes_of_statistics(); }

void check(const CrossEntropyBackwardArgs& args) {
  const ArgumentChecker must("cross_entropy_backward");
  check_logits(must, args.exps, args.valid_columns);
  check_rows(must, args.exps, "max", args.max);
  check_rows(must, args.exps, "lse", args.lse);
  check_targets(must, args.targets, args.exps.size(0));
  must.count("dlogits", args.dlogits, args.exps.num_elements());
  const bool goes = args.exps.dtype == args.dlogits.dtype || args.exps.dtype == accumulate_dtype(args.dlogits.dtype);
  must.that(goes, "dlogits", args.dlogits, "have the dtype of exps, or one whose sums have it");
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
}
// One multiplication each, and of logits exp(x - lse) 2; the exponential of lse and the target are one per row.
OpCost cost(const CrossEntropyBackwardArgs& args) {
  return cost_by_rows(args.exps, is_half_dtype(args.exps.dtype) ? 3 : 1,
                      bytes_of(args.exps, args.dlogits, args.max, args.lse, args.targets));
}
Operands operands_of(const CrossEntropyBackwardArgs& args) {
  return {args.dlogits.dtype, existing({args.exps, args.max, args.lse, args.targets, args.loss_scale}), {args.dlogits}};
}
void infer(Inference& call, const CrossEntropyBackwardArgs& args) {
  const Operand exps = call.read("exps", args.exps), max = call.read("max", args.max), lse = call.read("lse", args.lse),
                targets = call.read("targets", args.targets);
  for (const TypeAxis axis : call.axes()) {
    for (const Operand& x : {exps, lse}) call.require_complete(x, axis);
    for (const Operand& x : {exps, lse}) require_same_rows(call, targets, x, axis);
    // The exponentials are in the scale of the same rank's maximum.
    const bool is_local = exps.is_sharded_along(axis, dim_of_columns);
    if (is_local != (max[axis].placement == TensorPlacement::local_max)) call.fail_together(exps, max, axis);
  }
  if (args.loss_scale.exists()) call.require_the_same(call.read("loss_scale", args.loss_scale));
  call.require_position(exps, dim_of_columns, args.first_column);
  call.write(args.dlogits, exps.piece.type);
}
void sample(SampleOperands& s, CrossEntropyBackwardArgs& args) {
  args = {.exps = s.sums({s.m(), s.n()}),
          .max = s.of_rows(),
          .lse = s.of_rows(),
          .targets = s.tokens(s.n()),
          .dlogits = s.rows(),
          .valid_columns = s.n()};
}
SampleSizes usual_sizes(const CrossEntropyBackwardArgs& /*args*/) { return usual_sizes_of_logits(); }

}  // namespace echelon
