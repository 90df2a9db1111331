#include "ops/check.h"

#include "base/error.h"

#include <string_view>

namespace echelon {
namespace {

/// The questions that one operation asks about its tensors.
class Checker {
 public:
  explicit Checker(std::string_view op) : op_(op) {}

  void that(bool holds, std::string_view tensor, const Tensor& t, std::string_view expected) const {
    if (!holds) throw Failure(fmt::format("{}: {} is {} {}, but must {}", op_, tensor, name_of(t.dtype), to_string(t.sizes), expected));
  }
  void dims(std::string_view name, const Tensor& t, int num_dims) const {
    if (t.sizes.num_dims() != num_dims) that(false, name, t, fmt::format("have {} dims", num_dims));
  }
  void count(std::string_view name, const Tensor& t, std::int64_t num_elements) const {
    if (t.num_elements() != num_elements) that(false, name, t, fmt::format("have {} elements", num_elements));
  }
  void dtype(std::string_view name, const Tensor& t, DType wanted) const {
    if (t.dtype != wanted) that(false, name, t, fmt::format("be {}", name_of(wanted)));
  }
  void like(std::string_view name, const Tensor& t, const Tensor& model) const {
    count(name, t, model.num_elements());
    dtype(name, t, model.dtype);
  }
  void computes(std::string_view name, const Tensor& t) const { that(t.dtype != DType::int32, name, t, "be float32, float64, bfloat16 or float16"); }
  void matrix(std::string_view name, const Tensor& t) const {
    that(t.sizes.num_dims() >= 1, name, t, "have at least one dim");
    computes(name, t);
  }
  /// A gradient of a weight: of the activations' format or the one sums are formed in.
  void gradient(std::string_view name, const Tensor& t, DType activations) const {
    that(t.dtype == activations || t.dtype == accumulate_dtype(activations), name, t, "have the activations' dtype or its accumulate_dtype");
  }
  /// A number for each column of a matrix, in its format.
  void vector(std::string_view name, const Tensor& t, const Tensor& matrix) const {
    count(name, t, matrix.size(-1));
    dtype(name, t, matrix.dtype);
  }
  void scalars(std::string_view name, const Tensor& t, std::int64_t num_elements) const {
    count(name, t, num_elements);
    dtype(name, t, DType::float64);
  }
  void statistics(std::string_view name, const Tensor& t, std::int64_t rows, DType activations) const {
    count(name, t, rows);
    dtype(name, t, accumulate_dtype(activations));
  }

 private:
  std::string_view op_;
};

std::int64_t num_columns(const Tensor& t) { return t.size(-1); }
std::int64_t num_rows(const Tensor& t) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < t.sizes.num_dims(); ++dim) rows *= t.size(dim);
  return rows;
}

void check_lookup(const Checker& must, const Tensor& tokens, const Tensor& table, const Tensor& y) {
  must.dims("table", table, 2);
  must.dtype("tokens", tokens, DType::int32);
  must.matrix("y", y);
  must.count("y", y, tokens.num_elements() * table.size(1));
}

void check_positions(const Checker& must, const Tensor& table, const Tensor& y, std::int64_t seq_len) {
  must.dims("table", table, 2);
  must.matrix("y", y);
  must.that(num_columns(y) == table.size(1), "y", y, "have rows of the table's width");
  must.that(seq_len >= 1 && seq_len <= table.size(0), "table", table, "have a row for every position");
}

void check_attention(const Checker& must, const AttentionArgs& args) {
  must.dims("q", args.q, 4);
  must.dims("k", args.k, 4);
  must.computes("q", args.q);
  must.like("v", args.v, args.k);
  must.dtype("k", args.k, args.q.dtype);
  must.like("out", args.out, args.q);
  must.statistics("lse", args.lse, args.q.size(0) * args.q.size(2) * args.q.size(1), args.q.dtype);
  must.that(args.k.size(0) == args.q.size(0) && args.k.size(3) == args.q.size(3), "k", args.k, "have q's batch and head width");
  must.that(args.group >= 1 && args.first_head >= 0, "q", args.q, "have a positive group and no negative first_head");
  must.that((args.q.size(2) + args.first_head + args.group - 1) / args.group <= args.k.size(2), "k", args.k, "have a kv head for every head of q");
  if (!args.mask.starts.exists()) return;
  must.dtype("starts", args.mask.starts, DType::int32);
  must.count("starts", args.mask.starts, args.q.size(0) * args.q.size(1));
}

void check_logits(const Checker& must, const Tensor& logits, std::int64_t valid_columns) {
  must.dims("logits", logits, 2);
  must.computes("logits", logits);
  must.that(valid_columns >= 0 && valid_columns <= logits.size(1), "logits", logits, "have at least valid_columns columns");
}

void check_rows(const Checker& must, const Tensor& logits, std::string_view name, const Tensor& t) { must.statistics(name, t, logits.size(0), logits.dtype); }

void check_targets(const Checker& must, const Tensor& targets, std::int64_t rows) {
  must.count("targets", targets, rows);
  must.dtype("targets", targets, DType::int32);
}

void check_float8(const Checker& must, const MatmulArgs& args, std::int64_t n, std::int64_t k) {
  const bool both = args.is_float8() && args.b_format != OperandFormat::own,
             both_e5m2 = args.a_format == OperandFormat::float8_e5m2 && args.a_format == args.b_format;
  must.that(both && !both_e5m2, "b", args.b, "be rounded to float8 if and only if a is, not both to e5m2");
  constexpr std::int64_t unit = 16;  // what tensor cores take at a time
  must.that(n % unit == 0 && k % unit == 0, "b", args.b, "have sizes that are multiples of 16");
  must.that(!args.transpose_a || args.a.size(1) % unit == 0, "a", args.a, "have sizes that are multiples of 16");
  must.dtype("scratch", args.scratch, DType::int32);
  must.count("scratch", args.scratch, float8_scratch_size(args.a.num_elements(), args.b.num_elements()));
}

}  // namespace

void check(const MatmulArgs& args) {
  const Checker must("matmul");
  must.dims("a", args.a, 2);
  must.dims("b", args.b, 2);
  must.dims("c", args.c, 2);
  must.computes("a", args.a);
  must.dtype("b", args.b, args.a.dtype);
  must.gradient("c", args.c, args.a.dtype);
  const auto m = args.a.size(args.transpose_a ? 1 : 0), k = args.a.size(args.transpose_a ? 0 : 1), n = args.b.size(args.transpose_b ? 0 : 1);
  if (args.b.size(args.transpose_b ? 1 : 0) != k) must.that(false, "b", args.b, fmt::format("share the inner size {} with a {}", k, to_string(args.a.sizes)));
  if (args.c.sizes != Sizes{m, n}) must.that(false, "c", args.c, fmt::format("be [{}, {}]", m, n));
  if (args.is_float8() || args.b_format != OperandFormat::own) check_float8(must, args, n, k);
}

void check_add_bias(Tensor y, Tensor bias) {
  const Checker must("add_bias");
  must.matrix("y", y);
  must.count("bias", bias, num_columns(y));
  must.dtype("bias", bias, y.dtype);
}

void check_bias_backward(Tensor dy, Tensor dbias) {
  const Checker must("bias_backward");
  must.matrix("dy", dy);
  must.count("dbias", dbias, num_columns(dy));
  must.gradient("dbias", dbias, dy.dtype);
}

void check_add(Tensor out, Tensor a, Tensor b) {
  const Checker must("add");
  must.computes("a", a);
  must.computes("b", b);
  must.count("b", b, a.num_elements());
  must.that(accumulate_dtype(b.dtype) == accumulate_dtype(a.dtype), "b", b, "have a dtype whose sums have the dtype of a's sums");
  must.like("out", out, a);
}

void check_copy(Tensor out, Tensor x) {
  const Checker must("copy");
  must.count("out", out, x.num_elements());
  if (out.dtype == x.dtype) return;  // any format may be copied to itself
  must.computes("x", x);
  must.computes("out", out);
}

void check_fill(Tensor out) {
  if (out.dtype != DType::int32) Checker("fill").computes("out", out);
}

void check_scale(Tensor x) { Checker("scale").computes("x", x); }

void check(const EmbeddingArgs& args) {
  const Checker must("embedding");
  check_lookup(must, args.tokens, args.w, args.y);
  must.dtype("w", args.w, args.y.dtype);
}

void check(const EmbeddingBackwardArgs& args) {
  const Checker must("embedding_backward");
  check_lookup(must, args.tokens, args.dw, args.dy);
  must.gradient("dw", args.dw, args.dy.dtype);
}

void check(const PositionsArgs& args) {
  const Checker must("add_positions");
  check_positions(must, args.w, args.y, args.seq_len);
  must.dtype("w", args.w, args.y.dtype);
}

void check(const PositionsBackwardArgs& args) {
  const Checker must("positions_backward");
  check_positions(must, args.dw, args.dy, args.seq_len);
  must.gradient("dw", args.dw, args.dy.dtype);
}

void check(const LayerNormArgs& args) {
  const Checker must("layer_norm");
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
  const Checker must("layer_norm_backward_input");
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
  const Checker must("layer_norm_backward_weight");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.count("dw", args.dw, num_columns(args.x));
  must.gradient("dw", args.dw, args.x.dtype);
  must.like("db", args.db, args.dw);
  must.statistics("mean", args.mean, num_rows(args.x), args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
}

void check(const LayerNormBackwardArgs& args) {
  check(LayerNormBackwardInputArgs{.dy = args.dy, .x = args.x, .w = args.w, .mean = args.mean, .rstd = args.rstd, .dx = args.dx, .dresidual = args.dresidual});
  check(LayerNormBackwardWeightArgs{.dy = args.dy, .x = args.x, .mean = args.mean, .rstd = args.rstd, .dw = args.dw, .db = args.db});
}

void check(const RmsNormArgs& args) {
  const Checker must("rms_norm");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.residual.exists()) must.like("residual", args.residual, args.x);
}

void check(const RmsNormBackwardInputArgs& args) {
  const Checker must("rms_norm_backward_input");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  must.count("w", args.w, num_columns(args.x));
  must.dtype("w", args.w, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
  if (args.dresidual.exists()) must.like("dresidual", args.dresidual, args.x);
}

void check(const RmsNormBackwardWeightArgs& args) {
  const Checker must("rms_norm_backward_weight");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.count("dw", args.dw, num_columns(args.x));
  must.gradient("dw", args.dw, args.x.dtype);
  must.statistics("rstd", args.rstd, num_rows(args.x), args.x.dtype);
}

void check(const RmsNormBackwardArgs& args) {
  check(RmsNormBackwardInputArgs{.dy = args.dy, .x = args.x, .w = args.w, .rstd = args.rstd, .dx = args.dx, .dresidual = args.dresidual});
  check(RmsNormBackwardWeightArgs{.dy = args.dy, .x = args.x, .rstd = args.rstd, .dw = args.dw});
}

void check(const RopeArgs& args) {
  const Checker must("rope");
  must.dims("x", args.x, 4);
  must.computes("x", args.x);
  must.like("y", args.y, args.x);
  must.that(args.x.size(3) % 2 == 0, "x", args.x, "have an even head width");
  must.dims("cos", args.cos, 2);
  must.dtype("cos", args.cos, accumulate_dtype(args.x.dtype));
  must.like("sin", args.sin, args.cos);
  must.that(args.cos.size(1) == args.x.size(3) / 2, "cos", args.cos, "have half a head's width");
  must.that(args.first_position >= 0 && args.first_position + args.x.size(1) <= args.cos.size(0), "cos", args.cos, "have a row for every position");
}

void check(const AttentionArgs& args) { check_attention(Checker("attention"), args); }

void check(const AttentionBackwardArgs& args) {
  const Checker must("attention_backward");
  check_attention(
      must, {.q = args.q, .k = args.k, .v = args.v, .out = args.out, .lse = args.lse, .group = args.group, .first_head = args.first_head, .mask = args.mask});
  must.like("dout", args.dout, args.q);
  must.like("dq", args.dq, args.q);
  must.like("dk", args.dk, args.k);
  must.like("dv", args.dv, args.k);
  must.like("delta", args.delta, args.lse);
}

void check(const MergeAttentionArgs& args) {
  const Checker must("merge_attention");
  must.dims("part", args.part, 4);
  must.computes("part", args.part);
  must.count("out", args.out, args.part.num_elements());
  must.gradient("out", args.out, args.part.dtype);
  must.statistics("lse", args.lse, args.part.size(0) * args.part.size(2) * args.part.size(1), args.part.dtype);
  must.like("part_lse", args.part_lse, args.lse);
}

void check(const GeluArgs& args) {
  const Checker must("gelu");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
}

void check(const GeluBackwardArgs& args) {
  const Checker must("gelu_backward");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
  if (args.dbias.exists()) must.count("dbias", args.dbias, num_columns(args.x));
  if (args.dbias.exists()) must.gradient("dbias", args.dbias, args.x.dtype);
  if (args.y.exists()) must.like("y", args.y, args.x);
}

void check(const SwigluArgs& args) {
  const Checker must("swiglu");
  must.computes("y", args.y);
  must.like("gate", args.gate, args.y);
  must.like("up", args.up, args.y);
}

void check(const SwigluBackwardArgs& args) {
  const Checker must("swiglu_backward");
  must.computes("dy", args.dy);
  for (const Tensor& tensor : {args.gate, args.up, args.dgate, args.dup}) must.like("gate, up or a gradient of them", tensor, args.dy);
  if (args.y.exists()) must.like("y", args.y, args.dy);
}

void check(const RowExpArgs& args) {
  const Checker must("row_exp");
  check_logits(must, args.logits, args.valid_columns);
  check_rows(must, args.logits, "max", args.max);
  check_rows(must, args.logits, "sum", args.sum);
  check_rows(must, args.logits, "target_logit", args.target_logit);
  check_targets(must, args.targets, args.logits.size(0));
}

void check(const CrossEntropyArgs& args) {
  const Checker must("cross_entropy");
  must.that(args.max.dtype == DType::float32 || args.max.dtype == DType::float64, "max", args.max, "be float32 or float64");
  must.like("sum", args.sum, args.max);
  must.like("target_logit", args.target_logit, args.max);
  must.like("lse", args.lse, args.max);
  check_targets(must, args.targets, args.max.num_elements());
  must.scalars("loss_sum", args.loss_sum, 1);
}

void check(const CrossEntropyBackwardArgs& args) {
  const Checker must("cross_entropy_backward");
  check_logits(must, args.exps, args.valid_columns);
  check_rows(must, args.exps, "max", args.max);
  check_rows(must, args.exps, "lse", args.lse);
  check_targets(must, args.targets, args.exps.size(0));
  must.count("dlogits", args.dlogits, args.exps.num_elements());
  const bool goes = args.exps.dtype == args.dlogits.dtype || args.exps.dtype == accumulate_dtype(args.dlogits.dtype);
  must.that(goes, "dlogits", args.dlogits, "have the dtype of exps, or one whose sums have it");
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
}

void check(const RescaleSumsArgs& args) {
  const Checker must("rescale_sums");
  must.that(args.sum.dtype == DType::float32 || args.sum.dtype == DType::float64, "sum", args.sum, "be float32 or float64");
  must.like("max", args.max, args.sum);
  must.like("row_max", args.row_max, args.sum);
}

void check_sum_of_squares(Tensor x, Tensor sum) {
  const Checker must("sum_of_squares");
  must.computes("x", x);
  must.scalars("sum", sum, 1);
}

void check(const GradientFactorArgs& args) {
  const Checker must("gradient_factor");
  must.scalars("sum_of_squares", args.sum_of_squares, 1);
  must.scalars("num_targets", args.num_targets, 1);
  if (args.loss_scale.exists()) must.scalars("loss_scale", args.loss_scale, 1);
  must.scalars("norm", args.norm, 1);
  must.scalars("factor", args.factor, 1);
}

void check(const AdamWArgs& args) {
  const Checker must("adamw");
  must.computes("param", args.param);
  must.gradient("grad", args.grad, args.param.dtype);
  must.count("master", args.master, args.param.num_elements());
  must.dtype("master", args.master, accumulate_dtype(args.param.dtype));
  must.count("grad", args.grad, args.param.num_elements());
  must.count("m", args.m, args.master.num_elements());
  const bool may_be_coarse = args.master.dtype == DType::float32 && args.m.dtype == DType::bfloat16;
  must.that(args.m.dtype == args.master.dtype || may_be_coarse, "m", args.m, "have the master's dtype, or bfloat16 beside float32");
  must.like("v", args.v, args.m);
  must.that(args.noise.row >= 1, "m", args.m, "lie in rows of at least one element");
  must.scalars("scalars", args.scalars, num_adamw_scalars);
}

namespace {

void check_offsets(const Checker& must, const Tensor& offsets) {
  must.dtype("offsets", offsets, DType::int32);
  must.dims("offsets", offsets, 1);
  must.that(offsets.size(0) >= 2 && offsets.size(0) <= most_experts + 1, "offsets", offsets, "be of one expert or more, and of 8192 at most");
}

/// Rows [N, D] of tokens and [R, D] of experts.
void check_slots(const Checker& must, const Tensor& slots, const Tensor& of_tokens, const Tensor& of_experts) {
  must.dims("slots", slots, 2);
  must.dtype("slots", slots, DType::int32);
  must.dims("the tokens' rows", of_tokens, 2);
  must.computes("the tokens' rows", of_tokens);
  must.dims("the experts' rows", of_experts, 2);
  must.dtype("the experts' rows", of_experts, of_tokens.dtype);
  must.that(of_tokens.size(0) == slots.size(0), "the tokens' rows", of_tokens, "have a row for each row of slots");
  must.that(of_experts.size(0) == slots.num_elements(), "the experts' rows", of_experts, "have a row for each slot");
  must.that(of_experts.size(1) == of_tokens.size(1), "the experts' rows", of_experts, "be as wide as those of tokens");
}

void check_weights(const Checker& must, std::string_view name, const Tensor& weights, const Tensor& slots, DType activations) {
  must.statistics(name, weights, slots.num_elements(), activations);
}

}  // namespace

void check(const ExpertSlotsArgs& args) {
  const Checker must("expert_slots");
  must.dims("experts", args.experts, 2);
  must.dtype("experts", args.experts, DType::int32);
  must.like("slots", args.slots, args.experts);
  check_offsets(must, args.offsets);
}

void check(const PermuteToExpertsArgs& args) { check_slots(Checker("permute_to_experts"), args.slots, args.x, args.y); }

void check(const CombineExpertsArgs& args) {
  const Checker must("combine_experts");
  check_slots(must, args.slots, args.out, args.y);
  if (args.weights.exists()) check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
}

void check(const CombineExpertsBackwardArgs& args) {
  const Checker must("combine_experts_backward");
  check_slots(must, args.slots, args.dout, args.y);
  must.like("dy", args.dy, args.y);
  check_weights(must, "weights", args.weights, args.slots, args.y.dtype);
  check_weights(must, "dweights", args.dweights, args.slots, args.y.dtype);
}

void check(const GroupedMatmulArgs& args) {
  const Checker must("grouped_matmul");
  must.dims("a", args.a, 2);
  must.dims("w", args.w, 3);
  must.dims("c", args.c, 2);
  must.computes("a", args.a);
  must.dtype("w", args.w, args.a.dtype);
  must.dtype("c", args.c, args.a.dtype);
  check_offsets(must, args.offsets);
  must.that(args.w.size(0) == args.offsets.size(0) - 1, "w", args.w, "have a matrix for each expert");
  must.that(args.w.size(args.transpose_w ? 2 : 1) == args.a.size(1), "w", args.w, "share the inner size with a");
  must.that(args.c.sizes == Sizes{args.a.size(0), args.w.size(args.transpose_w ? 1 : 2)}, "c", args.c, "have a's rows and w's outer size");
}

void check(const GroupedMatmulBackwardWeightArgs& args) {
  const Checker must("grouped_matmul_backward_weight");
  must.dims("dy", args.dy, 2);
  must.dims("x", args.x, 2);
  must.computes("dy", args.dy);
  must.dtype("x", args.x, args.dy.dtype);
  must.that(args.x.size(0) == args.dy.size(0), "x", args.x, "have dy's rows");
  check_offsets(must, args.offsets);
  must.gradient("dw", args.dw, args.dy.dtype);
  must.that(args.dw.sizes == Sizes{args.offsets.size(0) - 1, args.dy.size(1), args.x.size(1)}, "dw", args.dw, "be [experts, dy's width, x's width]");
}

}  // namespace echelon
