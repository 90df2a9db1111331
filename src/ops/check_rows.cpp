#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {
namespace {

void check_lookup(const ArgumentChecker& must, const Tensor& tokens, const Tensor& table, const Tensor& y) {
  must.dims("table", table, 2);
  must.dtype("tokens", tokens, DType::int32);
  must.matrix("y", y);
  must.count("y", y, tokens.num_elements() * table.size(1));
}

void check_positions(const ArgumentChecker& must, const Tensor& table, const Tensor& y, std::int64_t seq_len) {
  must.dims("table", table, 2);
  must.matrix("y", y);
  must.that(num_columns(y) == table.size(1), "y", y, "have rows of the table's width");
  must.that(seq_len >= 1 && seq_len <= table.size(0), "table", table, "have a row for every position");
}

}  // namespace

void check(const EmbeddingArgs& args) {
  const ArgumentChecker must("embedding");
  check_lookup(must, args.tokens, args.w, args.y);
  must.dtype("w", args.w, args.y.dtype);
}

void check(const EmbeddingBackwardArgs& args) {
  const ArgumentChecker must("embedding_backward");
  check_lookup(must, args.tokens, args.dw, args.dy);
  must.gradient("dw", args.dw, args.dy.dtype);
}

void check(const PositionsArgs& args) {
  const ArgumentChecker must("add_positions");
  check_positions(must, args.w, args.y, args.seq_len);
  must.dtype("w", args.w, args.y.dtype);
}

void check(const PositionsBackwardArgs& args) {
  const ArgumentChecker must("positions_backward");
  check_positions(must, args.dw, args.dy, args.seq_len);
  must.gradient("dw", args.dw, args.dy.dtype);
}

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

void check(const RmsNormArgs& args) {
  const ArgumentChecker must("rms_norm");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.residual.exists()) must.like("residual", args.residual, args.x);
}

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

void check(const RmsNormBackwardWeightArgs& args) {
  const ArgumentChecker must("rms_norm_backward_weight");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.count("dw", args.dw, num_columns(args.x));
  must.gradient("dw", args.dw, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
}

void check(const RmsNormBackwardArgs& args) {
  check(RmsNormBackwardInputArgs{
      .dy = args.dy, .x = args.x, .w = args.w, .rstd = args.rstd, .dx = args.dx, .dresidual = args.dresidual});
  check(RmsNormBackwardWeightArgs{.dy = args.dy, .x = args.x, .rstd = args.rstd, .dw = args.dw});
}

void check(const RopeArgs& args) {
  const ArgumentChecker must("rope");
  must.dims("x", args.x, 4);
  must.computes("x", args.x);
  must.like("y", args.y, args.x);
  must.that(args.x.size(3) % 2 == 0, "x", args.x, "have an even head width");
  must.dims("cos", args.cos, 2);
  must.dtype("cos", args.cos, accumulate_dtype(args.x.dtype));
  must.like("sin", args.sin, args.cos);
  must.that(args.cos.size(1) == args.x.size(3) / 2, "cos", args.cos, "have half a head's width");
  must.that(args.first_position >= 0 && args.first_position + args.x.size(1) <= args.cos.size(0), "cos", args.cos,
            "have a row for every position");
}

}  // namespace echelon
