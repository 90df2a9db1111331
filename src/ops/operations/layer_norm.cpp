#include "ops/operations/layer_norm.h"

#include "ops/checker.h"
#include "ops/description.h"
#include "ops/operations/norm_rule.h"
#include "ops/sample.h"

namespace echelon {

void check(const LayerNormArgs& args) {
  const ArgumentChecker must("layer_norm");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.like("b", args.b, args.w);
  must.statistics("mean", args.mean, num_rows(args.x), args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.residual.exists()) must.like("residual", args.residual, args.x);
}
// Mean 1, variance 3, normalise 2, weight and bias 2; the residual is one more, and then x is written too.
OpCost cost(const LayerNormArgs& args) {
  const std::int64_t with_residual = args.residual.exists() ? 1 : 0;
  return cost_by_rows(
      args.x, 8 + with_residual,
      bytes_of(args.x, args.w, args.b, args.y, args.mean, args.rstd) + with_residual * 2 * bytes_of(args.x));
}
Operands operands_of(const LayerNormArgs& args) {
  return {args.x.dtype, existing({args.x, args.w, args.b, args.residual}), {args.y, args.mean, args.rstd}};
}
void infer(Inference& call, const LayerNormArgs& args) {
  add_residual(call, args.x, args.residual);
  const NormRule rule(call, args.x, args.w);
  for (const TypeAxis axis : call.axes()) call.require_whole(call.read("b", args.b), axis);
  rule.write_rows(args.y);
  rule.write_statistics(args.mean);
  rule.write_statistics(args.rstd);
}
void sample(SampleOperands& s, LayerNormArgs& args) {
  args = {.x = s.rows(),
          .w = s.x({s.n()}),
          .b = s.x({s.n()}),
          .y = s.rows(),
          .mean = s.of_rows(),
          .rstd = s.of_rows(),
          .residual = s.rows()};
}
SampleSizes usual_sizes(const LayerNormArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const LayerNormBackwardInputArgs& args) {
  const ArgumentChecker must("layer_norm_backward_input");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("mean", args.mean, num_rows(args.x), args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.dresidual.exists()) must.like("dresidual", args.dresidual, args.x);
}
// xhat 2, g = dy w 1, sum of g 1, sum of g xhat 2, dx = rstd (g - mean - xhat mean) 4, past the norm 1.
OpCost cost(const LayerNormBackwardInputArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return cost_by_rows(
      args.x, 10 + with_residual,
      bytes_of(args.dy, args.x, args.w, args.mean, args.rstd, args.dx) + with_residual * bytes_of(args.x));
}
Operands operands_of(const LayerNormBackwardInputArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.mean, args.rstd, args.dresidual}), {args.dx}};
}
void infer(Inference& call, const LayerNormBackwardInputArgs& args) {
  const NormRule rule(call, args.x, args.w);
  rule.require_statistics("mean", args.mean);
  rule.require_statistics("rstd", args.rstd);
  rule.write_input_gradient(call.read("dy", args.dy), args.dx, args.dresidual);
}
void sample(SampleOperands& s, LayerNormBackwardInputArgs& args) {
  args = {.dy = s.rows(),
          .x = s.rows(),
          .w = s.x({s.n()}),
          .mean = s.of_rows(),
          .rstd = s.of_rows(),
          .dx = s.rows(),
          .dresidual = s.rows()};
}
SampleSizes usual_sizes(const LayerNormBackwardInputArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const LayerNormBackwardWeightArgs& args) {
  const ArgumentChecker must("layer_norm_backward_weight");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.count("dw", args.dw, num_columns(args.x));
  must.gradient("dw", args.dw, args.x.dtype);
  must.like("db", args.db, args.dw);
  must.statistics("mean", args.mean, num_rows(args.x), args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
}
// xhat 2, dw 2, db 1.
OpCost cost(const LayerNormBackwardWeightArgs& args) {
  return cost_by_rows(args.x, 5, bytes_of(args.dy, args.x, args.mean, args.rstd) + 2 * bytes_of(args.dw, args.db));
}
Operands operands_of(const LayerNormBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.mean, args.rstd, args.dw, args.db}, {}};
}
void infer(Inference& call, const LayerNormBackwardWeightArgs& args) {
  const NormRule rule(call, args.x, {});
  const Operand dy = call.read("dy", args.dy);
  rule.require_statistics("mean", args.mean);
  rule.require_statistics("rstd", args.rstd);
  rule.add_weight_gradient(dy, "dw", args.dw);
  rule.add_weight_gradient(dy, "db", args.db);
}
void sample(SampleOperands& s, LayerNormBackwardWeightArgs& args) {
  args = {.dy = s.rows(),
          .x = s.rows(),
          .mean = s.of_rows(),
          .rstd = s.of_rows(),
          .dw = s.sums({s.n()}),
          .db = s.sums({s.n()})};
}
SampleSizes usual_sizes(const LayerNormBackwardWeightArgs& /*args*/) { return usual_sizes_of_rows(); }

void check(const LayerNormBackwardArgs& args) {
  check(LayerNormBackwardInputArgs{.dy = args.dy,
                                   .x = args.x,
                                   .w = args.w,
                                   .mean = args.mean,
                                   .rstd = args.rstd,
                                   .dx = args.dx,
                                   .dresidual = args.dresidual});
  check(LayerNormBackwardWeightArgs{
      .dy = args.dy, .x = args.x, .mean = args.mean, .rstd = args.rstd, .dw = args.dw, .db = args.db});
}
// Both, with xhat once.
OpCost cost(const LayerNormBackwardArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return cost_by_rows(args.x, 13 + with_residual,
                      bytes_of(args.dy, args.x, args.w, args.mean, args.rstd, args.dx) +
                          2 * bytes_of(args.dw, args.db) + with_residual * bytes_of(args.x));
}
Operands operands_of(const LayerNormBackwardArgs& args) {
  return {args.x.dtype,
          existing({args.dy, args.x, args.w, args.mean, args.rstd, args.dw, args.db, args.dresidual}),
          {args.dx}};
}
void infer(Inference& call, const LayerNormBackwardArgs& args) {
  infer(call, LayerNormBackwardWeightArgs{args.dy, args.x, args.mean, args.rstd, args.dw, args.db});
  infer(call, LayerNormBackwardInputArgs{args.dy, args.x, args.w, args.mean, args.rstd, args.dx, args.dresidual});
}
void sample(SampleOperands& s, LayerNormBackwardArgs& args) {
  args = {.dy = s.rows(),
          .x = s.rows(),
          .w = s.x({s.n()}),
          .mean = s.of_rows(),
          .rstd = s.of_rows(),
          .dx = s.rows(),
          .dw = s.sums({s.n()}),
          .db = s.sums({s.n()}),
          .dresidual = s.rows()};
}
SampleSizes usual_sizes(const LayerNormBackwardArgs& /*args*/) { return usual_sizes_of_rows(); }

}  // namespace echelon
