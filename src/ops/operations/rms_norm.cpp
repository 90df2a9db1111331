#include "ops/operations/rms_norm.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/norm_rule.h"
#include "ops/sample.h"

namespace echelon {

void check(const RmsNormArgs& args) {
  const ArgumentChecker must("rms_norm");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.residual.exists()) must.like("residual", args.residual, args.x);
}
// Sum of squares 2, normalise 1, weight 1.
OpCost cost(const RmsNormArgs& args) {
  const std::int64_t with_residual = args.residual.exists() ? 1 : 0;
  return cost_by_rows(args.x, 4 + with_residual,
                      bytes_of(args.x, args.w, args.y, args.rstd) + with_residual * 2 * bytes_of(args.x));
}
Operands operands_of(const RmsNormArgs& args) {
  return {args.x.dtype, existing({args.x, args.w, args.residual}), {args.y, args.rstd}};
}
void infer(Inference& call, const RmsNormArgs& args) {
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
}
// xhat 1, g = dy w 1, sum of g xhat 2, dx = rstd (g - xhat mean) 3.
OpCost cost(const RmsNormBackwardInputArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return cost_by_rows(args.x, 7 + with_residual,
                      bytes_of(args.dy, args.x, args.w, args.rstd, args.dx) + with_residual * bytes_of(args.x));
}
Operands operands_of(const RmsNormBackwardInputArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.rstd, args.dresidual}), {args.dx}};
}
void infer(Inference& call, const RmsNormBackwardInputArgs& args) {
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
