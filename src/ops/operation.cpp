#include "ops/operation.h"

#include "ops/check.h"

namespace echelon {
namespace {

void call(Ops& ops, const MatmulArgs& args) { ops.matmul(args); }
void call(Ops& ops, const AddBiasArgs& args) { ops.add_bias(args.y, args.bias); }
void call(Ops& ops, const BiasBackwardArgs& args) { ops.bias_backward(args.dy, args.dbias); }
void call(Ops& ops, const AddArgs& args) { ops.add(args.out, args.a, args.b); }
void call(Ops& ops, const CopyArgs& args) { ops.copy(args.out, args.x); }
void call(Ops& ops, const FillArgs& args) { ops.fill(args.out, args.value); }
void call(Ops& ops, const ScaleArgs& args) { ops.scale(args.x, args.factor); }
void call(Ops& ops, const EmbeddingArgs& args) { ops.embedding(args); }
void call(Ops& ops, const EmbeddingBackwardArgs& args) { ops.embedding_backward(args); }
void call(Ops& ops, const PositionsArgs& args) { ops.add_positions(args); }
void call(Ops& ops, const PositionsBackwardArgs& args) { ops.positions_backward(args); }
void call(Ops& ops, const LayerNormArgs& args) { ops.layer_norm(args); }
void call(Ops& ops, const LayerNormBackwardInputArgs& args) { ops.layer_norm_backward_input(args); }
void call(Ops& ops, const LayerNormBackwardWeightArgs& args) { ops.layer_norm_backward_weight(args); }
void call(Ops& ops, const LayerNormBackwardArgs& args) { ops.layer_norm_backward(args); }
void call(Ops& ops, const RmsNormArgs& args) { ops.rms_norm(args); }
void call(Ops& ops, const RmsNormBackwardInputArgs& args) { ops.rms_norm_backward_input(args); }
void call(Ops& ops, const RmsNormBackwardWeightArgs& args) { ops.rms_norm_backward_weight(args); }
void call(Ops& ops, const RmsNormBackwardArgs& args) { ops.rms_norm_backward(args); }
void call(Ops& ops, const RopeArgs& args) { ops.rope(args); }
void call(Ops& ops, const AttentionArgs& args) { ops.attention(args); }
void call(Ops& ops, const AttentionBackwardArgs& args) { ops.attention_backward(args); }
void call(Ops& ops, const MergeAttentionArgs& args) { ops.merge_attention(args); }
void call(Ops& ops, const GeluArgs& args) { ops.gelu(args); }
void call(Ops& ops, const GeluBackwardArgs& args) { ops.gelu_backward(args); }
void call(Ops& ops, const SwigluArgs& args) { ops.swiglu(args); }
void call(Ops& ops, const SwigluBackwardArgs& args) { ops.swiglu_backward(args); }
void call(Ops& ops, const RowExpArgs& args) { ops.row_exp(args); }
void call(Ops& ops, const RescaleSumsArgs& args) { ops.rescale_sums(args); }
void call(Ops& ops, const CrossEntropyArgs& args) { ops.cross_entropy(args); }
void call(Ops& ops, const CrossEntropyBackwardArgs& args) { ops.cross_entropy_backward(args); }
void call(Ops& ops, const SumOfSquaresArgs& args) { ops.sum_of_squares(args.x, args.sum); }
void call(Ops& ops, const GradientFactorArgs& args) { ops.gradient_factor(args); }
void call(Ops& ops, const AdamWArgs& args) { ops.adamw(args); }
void call(Ops& ops, const ExpertSlotsArgs& args) { ops.expert_slots(args); }
void call(Ops& ops, const PermuteToExpertsArgs& args) { ops.permute_to_experts(args); }
void call(Ops& ops, const CombineExpertsArgs& args) { ops.combine_experts(args); }
void call(Ops& ops, const CombineExpertsBackwardArgs& args) { ops.combine_experts_backward(args); }
void call(Ops& ops, const GroupedMatmulArgs& args) { ops.grouped_matmul(args); }
void call(Ops& ops, const GroupedMatmulBackwardWeightArgs& args) { ops.grouped_matmul_backward_weight(args); }
void call(Ops& ops, const UploadArgs& args) { ops.upload(args.out, args.host); }
void call(Ops& ops, const DownloadArgs& args) { ops.download(args.host, args.x); }

/// Without arguments that were left out.
std::vector<Tensor> existing(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& tensor) { return !tensor.exists(); });
  return tensors;
}

// {dtype of the activations, what is read, what is overwritten}
Operands operands(const MatmulArgs& args) {
  if (args.accumulates) return {args.a.dtype, {args.a, args.b, args.c}, existing({args.scratch})};
  return {args.a.dtype, {args.a, args.b}, existing({args.c, args.scratch})};
}
Operands operands(const AddBiasArgs& args) { return {args.y.dtype, {args.y, args.bias}, {}}; }
Operands operands(const BiasBackwardArgs& args) { return {args.dy.dtype, {args.dy, args.dbias}, {}}; }
Operands operands(const AddArgs& args) { return {args.out.dtype, {args.a, args.b}, {args.out}}; }
Operands operands(const CopyArgs& args) { return {args.out.dtype, {args.x}, {args.out}}; }
Operands operands(const FillArgs& args) { return {args.out.dtype, {}, {args.out}}; }
Operands operands(const ScaleArgs& args) { return {args.x.dtype, {args.x}, {}}; }
Operands operands(const EmbeddingArgs& args) { return {args.y.dtype, {args.tokens, args.w}, {args.y}}; }
Operands operands(const EmbeddingBackwardArgs& args) { return {args.dy.dtype, {args.tokens, args.dy, args.dw}, {}}; }
Operands operands(const PositionsArgs& args) { return {args.y.dtype, {args.w, args.y}, {}}; }
Operands operands(const PositionsBackwardArgs& args) { return {args.dy.dtype, {args.dy, args.dw}, {}}; }
Operands operands(const LayerNormArgs& args) {
  return {args.x.dtype, existing({args.x, args.w, args.b, args.residual}), {args.y, args.mean, args.rstd}};
}
Operands operands(const LayerNormBackwardInputArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.mean, args.rstd, args.dresidual}), {args.dx}};
}
Operands operands(const LayerNormBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.mean, args.rstd, args.dw, args.db}, {}};
}
Operands operands(const LayerNormBackwardArgs& args) {
  return {args.x.dtype,
          existing({args.dy, args.x, args.w, args.mean, args.rstd, args.dw, args.db, args.dresidual}),
          {args.dx}};
}
Operands operands(const RmsNormArgs& args) {
  return {args.x.dtype, existing({args.x, args.w, args.residual}), {args.y, args.rstd}};
}
Operands operands(const RmsNormBackwardInputArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.rstd, args.dresidual}), {args.dx}};
}
Operands operands(const RmsNormBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.rstd, args.dw}, {}};
}
Operands operands(const RmsNormBackwardArgs& args) {
  return {args.x.dtype, existing({args.dy, args.x, args.w, args.rstd, args.dw, args.dresidual}), {args.dx}};
}
Operands operands(const RopeArgs& args) { return {args.x.dtype, {args.x, args.cos, args.sin}, {args.y}}; }
Operands operands(const AttentionArgs& args) {
  return {args.q.dtype, existing({args.q, args.k, args.v, args.mask.starts}), {args.out, args.lse}};
}
Operands operands(const AttentionBackwardArgs& args) {
  return {args.q.dtype, existing({args.q, args.k, args.v, args.out, args.lse, args.dout, args.mask.starts}),
          existing({args.dq, args.dk, args.dv, args.delta, args.scratch})};
}
Operands operands(const MergeAttentionArgs& args) {
  return {args.part.dtype, {args.out, args.lse, args.part, args.part_lse}, {}};
}
Operands operands(const GeluArgs& args) { return {args.y.dtype, existing({args.x, args.bias}), {args.y}}; }
Operands operands(const GeluBackwardArgs& args) {
  return {args.dx.dtype, existing({args.dy, args.x, args.bias, args.dbias}), existing({args.dx, args.y})};
}
Operands operands(const SwigluArgs& args) { return {args.y.dtype, {args.gate, args.up}, {args.y}}; }
Operands operands(const SwigluBackwardArgs& args) {
  return {args.dgate.dtype, {args.dy, args.gate, args.up}, existing({args.dgate, args.dup, args.y})};
}
Operands operands(const RowExpArgs& args) {
  return {args.logits.dtype, {args.logits, args.targets}, {args.max, args.sum, args.target_logit}};
}
Operands operands(const RescaleSumsArgs& args) { return {args.sum.dtype, {args.sum, args.max, args.row_max}, {}}; }
Operands operands(const CrossEntropyArgs& args) {
  return {args.max.dtype, {args.max, args.sum, args.target_logit, args.targets, args.loss_sum}, {args.lse}};
}
Operands operands(const CrossEntropyBackwardArgs& args) {
  return {args.dlogits.dtype, existing({args.exps, args.max, args.lse, args.targets, args.loss_scale}), {args.dlogits}};
}
Operands operands(const SumOfSquaresArgs& args) { return {args.x.dtype, {args.x, args.sum}, {}}; }
Operands operands(const GradientFactorArgs& args) {
  return {
      args.factor.dtype, existing({args.sum_of_squares, args.num_targets, args.loss_scale}), {args.norm, args.factor}};
}
Operands operands(const AdamWArgs& args) {
  const Tensor before = is_remainder(args) ? args.param : Tensor();
  return {args.param.dtype, existing({args.master, args.grad, args.m, args.v, args.scalars, before}), {args.param}};
}
Operands operands(const ExpertSlotsArgs& args) { return {DType::int32, {args.experts}, {args.slots, args.offsets}}; }
Operands operands(const PermuteToExpertsArgs& args) { return {args.x.dtype, {args.x, args.slots}, {args.y}}; }
Operands operands(const CombineExpertsArgs& args) {
  return {args.y.dtype, existing({args.y, args.slots, args.weights}), {args.out}};
}
Operands operands(const CombineExpertsBackwardArgs& args) {
  return {args.y.dtype, {args.dout, args.y, args.slots, args.weights}, {args.dy, args.dweights}};
}
Operands operands(const GroupedMatmulArgs& args) {
  if (args.accumulates) return {args.a.dtype, {args.a, args.w, args.offsets, args.c}, {}};
  return {args.a.dtype, {args.a, args.w, args.offsets}, {args.c}};
}
Operands operands(const GroupedMatmulBackwardWeightArgs& args) {
  return {args.x.dtype, {args.dy, args.x, args.offsets, args.dw}, {}};
}
Operands operands(const UploadArgs& args) { return {args.out.dtype, {}, {args.out}}; }
Operands operands(const DownloadArgs& args) { return {args.x.dtype, {args.x}, {}}; }

// Operations that take their arguments one by one; the others have cost(args) and check(args) in cost.h and check.h.
OpCost cost(const AddBiasArgs& args) { return cost_add_bias(args.y, args.bias); }
OpCost cost(const BiasBackwardArgs& args) { return cost_bias_backward(args.dy, args.dbias); }
OpCost cost(const AddArgs& args) { return cost_add(args.out, args.a, args.b); }
OpCost cost(const CopyArgs& args) { return cost_copy(args.out, args.x); }
OpCost cost(const FillArgs& args) { return cost_fill(args.out); }
OpCost cost(const ScaleArgs& args) { return cost_scale(args.x); }
OpCost cost(const SumOfSquaresArgs& args) { return cost_sum_of_squares(args.x, args.sum); }
OpCost cost(const UploadArgs& args) { return cost_transfer(args.out); }
OpCost cost(const DownloadArgs& args) { return cost_transfer(args.x); }

void check(const AddBiasArgs& args) { check_add_bias(args.y, args.bias); }
void check(const BiasBackwardArgs& args) { check_bias_backward(args.dy, args.dbias); }
void check(const AddArgs& args) { check_add(args.out, args.a, args.b); }
void check(const CopyArgs& args) { check_copy(args.out, args.x); }
void check(const FillArgs& args) { check_fill(args.out); }
void check(const ScaleArgs& args) { check_scale(args.x); }
void check(const SumOfSquaresArgs& args) { check_sum_of_squares(args.x, args.sum); }
void check(const UploadArgs& /*args*/) {}
void check(const DownloadArgs& /*args*/) {}

}  // namespace

Operands operands_of(const Operation& operation) {
  return std::visit([](const auto& args) { return operands(args); }, operation);
}

OpCost cost(const Operation& operation) {
  return std::visit([](const auto& args) { return cost(args); }, operation);
}

void check(const Operation& operation) {
  std::visit([](const auto& args) { check(args); }, operation);
}

void run(Ops& ops, const Operation& operation) {
  std::visit([&](const auto& args) { call(ops, args); }, operation);
}

}  // namespace echelon
