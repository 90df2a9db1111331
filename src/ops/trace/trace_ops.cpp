#include "ops/trace/trace_ops.h"

#include "ops/check.h"

#include <numeric>

namespace echelon {

void TraceOps::record(OpKind kind, DType dtype, const OpCost& cost) {
  records_.push_back({.kind = kind, .dtype = dtype, .m = cost.m, .n = cost.n, .k = cost.k, .flops = cost.flops, .bytes = cost.bytes});
}

std::int64_t TraceOps::total_flops() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0}, [](std::int64_t sum, const OpRecord& r) { return sum + r.flops; });
}

std::int64_t TraceOps::total_bytes() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0}, [](std::int64_t sum, const OpRecord& r) { return sum + r.bytes; });
}

void TraceOps::matmul(const MatmulArgs& args) {
  check(args);
  record(OpKind::matmul, args.a.dtype, cost(args));
}

void TraceOps::embedding(const EmbeddingArgs& args) {
  check(args);
  record(OpKind::embedding, args.y.dtype, cost(args));
}

void TraceOps::embedding_backward(const EmbeddingBackwardArgs& args) {
  check(args);
  record(OpKind::embedding_backward, args.dy.dtype, cost(args));
}

void TraceOps::add_positions(const PositionsArgs& args) {
  check(args);
  record(OpKind::add_positions, args.y.dtype, cost(args));
}

void TraceOps::positions_backward(const PositionsBackwardArgs& args) {
  check(args);
  record(OpKind::positions_backward, args.dy.dtype, cost(args));
}

void TraceOps::layer_norm(const LayerNormArgs& args) {
  check(args);
  record(OpKind::layer_norm, args.x.dtype, cost(args));
}

void TraceOps::layer_norm_backward_input(const LayerNormBackwardInputArgs& args) {
  check(args);
  record(OpKind::layer_norm_backward_input, args.x.dtype, cost(args));
}

void TraceOps::layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) {
  check(args);
  record(OpKind::layer_norm_backward_weight, args.x.dtype, cost(args));
}

void TraceOps::rms_norm(const RmsNormArgs& args) {
  check(args);
  record(OpKind::rms_norm, args.x.dtype, cost(args));
}

void TraceOps::rms_norm_backward_input(const RmsNormBackwardInputArgs& args) {
  check(args);
  record(OpKind::rms_norm_backward_input, args.x.dtype, cost(args));
}

void TraceOps::rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) {
  check(args);
  record(OpKind::rms_norm_backward_weight, args.x.dtype, cost(args));
}

void TraceOps::rope(const RopeArgs& args) {
  check(args);
  record(OpKind::rope, args.x.dtype, cost(args));
}

void TraceOps::attention(const AttentionArgs& args) {
  check(args);
  record(OpKind::attention, args.q.dtype, cost(args));
}

void TraceOps::attention_backward(const AttentionBackwardArgs& args) {
  check(args);
  record(OpKind::attention_backward, args.q.dtype, cost(args));
}

void TraceOps::row_max(const RowMaxArgs& args) {
  check(args);
  record(OpKind::row_max, args.logits.dtype, cost(args));
}

void TraceOps::row_sum_exp(const RowSumExpArgs& args) {
  check(args);
  record(OpKind::row_sum_exp, args.logits.dtype, cost(args));
}

void TraceOps::cross_entropy(const CrossEntropyArgs& args) {
  check(args);
  record(OpKind::cross_entropy, args.max.dtype, cost(args));
}

void TraceOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  check(args);
  record(OpKind::cross_entropy_backward, args.logits.dtype, cost(args));
}

void TraceOps::adamw(const AdamWArgs& args) {
  check(args);
  record(OpKind::adamw, args.param.dtype, cost(args));
}

void TraceOps::add_bias(Tensor y, Tensor bias) {
  check_add_bias(y, bias);
  record(OpKind::add_bias, y.dtype, cost_add_bias(y, bias));
}

void TraceOps::bias_backward(Tensor dy, Tensor dbias) {
  check_bias_backward(dy, dbias);
  record(OpKind::bias_backward, dy.dtype, cost_bias_backward(dy, dbias));
}

void TraceOps::add(Tensor out, Tensor a, Tensor b) {
  check_add(out, a, b);
  record(OpKind::add, out.dtype, cost_add(out, a, b));
}

void TraceOps::copy(Tensor out, Tensor x) {
  check_copy(out, x);
  record(OpKind::copy, out.dtype, cost_copy(out, x));
}

void TraceOps::fill(Tensor out, double) {
  check_fill(out);
  record(OpKind::fill, out.dtype, cost_fill(out));
}

void TraceOps::scale(Tensor x, double) {
  check_scale(x);
  record(OpKind::scale, x.dtype, cost_scale(x));
}

void TraceOps::gelu(Tensor y, Tensor x) {
  check_gelu(y, x);
  record(OpKind::gelu, y.dtype, cost_gelu(y, x));
}

void TraceOps::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
  check_gelu_backward(dx, dy, x);
  record(OpKind::gelu_backward, dx.dtype, cost_gelu_backward(dx, dy, x));
}

void TraceOps::swiglu(Tensor y, Tensor gate, Tensor up) {
  check_swiglu(y, gate, up);
  record(OpKind::swiglu, y.dtype, cost_swiglu(y, gate, up));
}

void TraceOps::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
  check_swiglu_backward(dgate, dup, dy, gate, up);
  record(OpKind::swiglu_backward, dgate.dtype, cost_swiglu_backward(dgate, dup, dy, gate, up));
}

void TraceOps::sum_of_squares(Tensor x, Tensor sum) {
  check_sum_of_squares(x, sum);
  record(OpKind::sum_of_squares, x.dtype, cost_sum_of_squares(x, sum));
}

void TraceOps::upload(Tensor out, const void*) { record(OpKind::upload, out.dtype, cost_transfer(out)); }

void TraceOps::download(void*, Tensor x) { record(OpKind::download, x.dtype, cost_transfer(x)); }

}  // namespace echelon
