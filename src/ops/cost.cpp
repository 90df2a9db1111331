#include "ops/cost.h"

#include <algorithm>

namespace echelon {
namespace {

template <class... Tensors>
std::int64_t bytes_of(const Tensors&... tensors) {
  return (tensors.num_bytes() + ... + 0);
}

std::int64_t bytes_if(const Tensor& tensor) { return tensor.exists() ? tensor.num_bytes() : 0; }

/// An operation on the rows of x with so many flops per element.
OpCost by_rows(const Tensor& x, std::int64_t flops_per_element, std::int64_t bytes) {
  const std::int64_t elements = x.num_elements(), columns = x.size(-1);
  return {.m = columns == 0 ? 0 : elements / columns,
          .n = columns,
          .k = 1,
          .flops = flops_per_element * elements,
          .bytes = bytes};
}

OpCost by_elements(const Tensor& x, std::int64_t flops_per_element, std::int64_t bytes) {
  return {.m = x.num_elements(), .n = 1, .k = 1, .flops = flops_per_element * x.num_elements(), .bytes = bytes};
}

/// Of attention or its gradients.
template <class Args>
std::int64_t visible_pairs(const Args& args) {
  const std::int64_t Tq = args.q.size(1), Tk = args.k.size(1);
  return num_visible_pairs(Tq, Tk, args.mask.diagonal(Tq, Tk));
}

}  // namespace

std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys, std::int64_t diagonal) {
  // Queries below `first` see nothing, those from `all` on every key, and those in between one key more each.
  const std::int64_t first = std::clamp<std::int64_t>(-diagonal, 0, num_queries),
                     all = std::clamp<std::int64_t>(num_keys - diagonal - 1, first, num_queries);
  const std::int64_t fewest = first + diagonal + 1, growing = all - first;
  return growing * (2 * fewest + growing - 1) / 2 + (num_queries - all) * num_keys;
}

OpCost cost(const MatmulArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const std::int64_t c_bytes = args.c.num_bytes() * (args.accumulates ? 2 : 1);
  // Float8: an operand is read for its largest number and once more to be rounded, and then written and read in 8 bits.
  const std::int64_t rounding_bytes =
      args.is_float8() ? bytes_of(args.a, args.b) + 2 * (args.a.num_elements() + args.b.num_elements()) : 0;
  return {.m = m, .n = n, .k = k, .flops = 2 * m * n * k, .bytes = bytes_of(args.a, args.b) + rounding_bytes + c_bytes};
}

OpCost cost_add_bias(Tensor y, Tensor bias) { return by_rows(y, 1, 2 * bytes_of(y) + bytes_of(bias)); }
OpCost cost_bias_backward(Tensor dy, Tensor dbias) { return by_rows(dy, 1, bytes_of(dy) + 2 * bytes_of(dbias)); }
OpCost cost_add(Tensor out, Tensor a, Tensor b) { return by_elements(out, 1, bytes_of(out, a, b)); }
OpCost cost_copy(Tensor out, Tensor x) { return by_elements(out, 0, bytes_of(out, x)); }
OpCost cost_fill(Tensor out) { return by_elements(out, 0, bytes_of(out)); }
OpCost cost_scale(Tensor x) { return by_elements(x, 1, 2 * bytes_of(x)); }

// Of a table only the rows that are looked up are touched: as many bytes as y.
OpCost cost(const EmbeddingArgs& args) { return by_rows(args.y, 0, bytes_of(args.tokens, args.y, args.y)); }
OpCost cost(const EmbeddingBackwardArgs& args) {
  const std::int64_t touched = args.dy.num_elements() * size_of(args.dw.dtype);
  return by_rows(args.dy, 1, bytes_of(args.tokens, args.dy) + 2 * touched);
}
OpCost cost(const PositionsArgs& args) {
  return by_rows(args.y, 1, 2 * bytes_of(args.y) + args.seq_len * args.w.size(1) * size_of(args.w.dtype));
}
OpCost cost(const PositionsBackwardArgs& args) {
  return by_rows(args.dy, 1, bytes_of(args.dy) + 2 * args.seq_len * args.dw.size(1) * size_of(args.dw.dtype));
}

// Mean 1, variance 3, normalise 2, weight and bias 2; the residual is one more, and then x is written too.
OpCost cost(const LayerNormArgs& args) {
  const std::int64_t with_residual = args.residual.exists() ? 1 : 0;
  return by_rows(args.x, 8 + with_residual,
                 bytes_of(args.x, args.w, args.b, args.y, args.mean, args.rstd) + with_residual * 2 * bytes_of(args.x));
}
// xhat 2, g = dy w 1, sum of g 1, sum of g xhat 2, dx = rstd (g - mean - xhat mean) 4, past the norm 1.
OpCost cost(const LayerNormBackwardInputArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return by_rows(args.x, 10 + with_residual,
                 bytes_of(args.dy, args.x, args.w, args.mean, args.rstd, args.dx) + with_residual * bytes_of(args.x));
}
// xhat 2, dw 2, db 1.
OpCost cost(const LayerNormBackwardWeightArgs& args) {
  return by_rows(args.x, 5, bytes_of(args.dy, args.x, args.mean, args.rstd) + 2 * bytes_of(args.dw, args.db));
}
// Both, with xhat once.
OpCost cost(const LayerNormBackwardArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return by_rows(args.x, 13 + with_residual,
                 bytes_of(args.dy, args.x, args.w, args.mean, args.rstd, args.dx) + 2 * bytes_of(args.dw, args.db) +
                     with_residual * bytes_of(args.x));
}
// Sum of squares 2, normalise 1, weight 1.
OpCost cost(const RmsNormArgs& args) {
  const std::int64_t with_residual = args.residual.exists() ? 1 : 0;
  return by_rows(args.x, 4 + with_residual,
                 bytes_of(args.x, args.w, args.y, args.rstd) + with_residual * 2 * bytes_of(args.x));
}
// xhat 1, g = dy w 1, sum of g xhat 2, dx = rstd (g - xhat mean) 3.
OpCost cost(const RmsNormBackwardInputArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return by_rows(args.x, 7 + with_residual,
                 bytes_of(args.dy, args.x, args.w, args.rstd, args.dx) + with_residual * bytes_of(args.x));
}
// xhat 1, dw 2.
OpCost cost(const RmsNormBackwardWeightArgs& args) {
  return by_rows(args.x, 3, bytes_of(args.dy, args.x, args.rstd) + 2 * bytes_of(args.dw));
}
OpCost cost(const RmsNormBackwardArgs& args) {
  const std::int64_t with_residual = args.dresidual.exists() ? 1 : 0;
  return by_rows(
      args.x, 9 + with_residual,
      bytes_of(args.dy, args.x, args.w, args.rstd, args.dx) + 2 * bytes_of(args.dw) + with_residual * bytes_of(args.x));
}

// Two multiplications and one addition per element; the rows of the tables that belong to the positions.
OpCost cost(const RopeArgs& args) {
  const std::int64_t tables = 2 * args.x.size(1) * args.cos.size(1) * size_of(args.cos.dtype);
  return by_rows(args.x, 3, bytes_of(args.x, args.y) + tables);
}

// Two products per visible pair: q k^T and p v.
OpCost cost(const AttentionArgs& args) {
  const std::int64_t heads = args.q.size(0) * args.q.size(2), pairs = visible_pairs(args), width = args.q.size(3);
  const std::int64_t bytes = bytes_of(args.q, args.k, args.v, args.out, args.lse) + bytes_if(args.mask.starts);
  return {.m = heads, .n = pairs, .k = width, .flops = 4 * heads * pairs * width, .bytes = bytes};
}
// Five products per visible pair: q k^T again, dout v^T, p^T dout, ds k, ds^T q.
OpCost cost(const AttentionBackwardArgs& args) {
  const std::int64_t heads = args.q.size(0) * args.q.size(2), pairs = visible_pairs(args), width = args.q.size(3);
  const std::int64_t read =
                         bytes_of(args.q, args.k, args.v, args.out, args.lse, args.dout) + bytes_if(args.mask.starts),
                     written = bytes_of(args.dq, args.dk, args.dv);
  return {.m = heads,
          .n = pairs,
          .k = width,
          .flops = 10 * heads * pairs * width,
          .bytes = read + written + 2 * bytes_of(args.delta)};
}
// Two products and a sum per number; the factors are of rows.
OpCost cost(const MergeAttentionArgs& args) {
  return by_rows(args.part, 3, 2 * bytes_of(args.out, args.lse) + bytes_of(args.part, args.part_lse));
}

// y = x/2 (1 + tanh(c (x + a x^3))): 4 for the argument, then 1 + 3; the bias 1.
OpCost cost(const GeluArgs& args) {
  return by_rows(args.x, args.bias.exists() ? 9 : 8, bytes_of(args.x, args.y) + bytes_if(args.bias));
}
// The same argument and its derivative, then (1 + t)/2 + x/2 (1 - t^2) u', times dy; y is one product more.
OpCost cost(const GeluBackwardArgs& args) {
  const std::int64_t more = (args.bias.exists() ? 1 : 0) + (args.dbias.exists() ? 1 : 0) + (args.y.exists() ? 1 : 0);
  return by_rows(
      args.x, 16 + more,
      bytes_of(args.x, args.dy, args.dx) + bytes_if(args.bias) + 2 * bytes_if(args.dbias) + bytes_if(args.y));
}
// sigmoid 3, two products.
OpCost cost(const SwigluArgs& args) { return by_elements(args.y, 5, bytes_of(args.y, args.gate, args.up)); }
// sigmoid 3, dup 2, dgate 5; y one product more.
OpCost cost(const SwigluBackwardArgs& args) {
  return by_elements(args.dy, args.y.exists() ? 11 : 10,
                     bytes_of(args.dgate, args.dup, args.dy, args.gate, args.up) + bytes_if(args.y));
}

// Maximum 1, exp(x - max) 2, sum 1. Logits of 16 bits are not written.
OpCost cost(const RowExpArgs& args) {
  const std::int64_t times = is_half_dtype(args.logits.dtype) ? 1 : 2;
  return by_rows(args.logits, 4,
                 times * bytes_of(args.logits) + bytes_of(args.targets, args.max, args.sum, args.target_logit));
}
OpCost cost(const RescaleSumsArgs& args) {
  return by_elements(args.sum, 3, 2 * bytes_of(args.sum) + bytes_of(args.max, args.row_max));
}
OpCost cost(const CrossEntropyArgs& args) {
  return by_elements(
      args.max, 4,
      bytes_of(args.max, args.sum, args.target_logit, args.targets, args.lse) + 2 * bytes_of(args.loss_sum));
}
// One product each, and of logits exp(x - lse) 2; the exponential of lse and the target are one per row.
OpCost cost(const CrossEntropyBackwardArgs& args) {
  return by_rows(args.exps, is_half_dtype(args.exps.dtype) ? 3 : 1,
                 bytes_of(args.exps, args.dlogits, args.max, args.lse, args.targets));
}

OpCost cost_sum_of_squares(Tensor x, Tensor sum) { return by_elements(x, 2, bytes_of(x) + 2 * bytes_of(sum)); }

// Two divisions, a root, the norm, its comparison 3, the factor.
OpCost cost(const GradientFactorArgs& args) {
  return by_elements(
      args.factor, 8,
      bytes_of(args.sum_of_squares, args.num_targets, args.norm, args.factor) + bytes_if(args.loss_scale));
}

// g 1, decay 2, m 3, v 4, update 5. `param` is written beside the master unless it is the master, and read where the
// master is its remainder. The scalars are of no weight.
OpCost cost(const AdamWArgs& args) {
  const std::int64_t param =
      args.param.dtype == args.master.dtype ? 0 : bytes_of(args.param) * (is_remainder(args) ? 2 : 1);
  return by_elements(args.master, 15, bytes_of(args.grad) + 2 * bytes_of(args.master, args.m, args.v) + param);
}

// Experts are looked at twice: to be counted, and to be placed. Of rows all count, wherever they go.
OpCost cost(const ExpertSlotsArgs& args) {
  return by_elements(args.experts, 2, 2 * bytes_of(args.experts) + bytes_of(args.slots, args.offsets));
}
OpCost cost(const PermuteToExpertsArgs& args) { return by_rows(args.y, 0, bytes_of(args.x, args.slots, args.y)); }
OpCost cost(const CombineExpertsArgs& args) {
  return by_rows(args.y, args.weights.exists() ? 2 : 1,
                 bytes_of(args.y, args.slots, args.out) + bytes_if(args.weights));
}
OpCost cost(const CombineExpertsBackwardArgs& args) {
  return by_rows(args.y, 3, bytes_of(args.dout, args.y, args.slots, args.weights, args.dy, args.dweights));
}
OpCost cost(const GroupedMatmulArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(1);
  return {.m = m,
          .n = n,
          .k = k,
          .flops = 2 * m * n * k,
          .bytes = bytes_of(args.a, args.w, args.offsets) + (args.accumulates ? 2 : 1) * bytes_of(args.c)};
}
OpCost cost(const GroupedMatmulBackwardWeightArgs& args) {
  const std::int64_t m = args.dy.size(1), n = args.x.size(1), k = args.x.size(0);
  return {.m = m,
          .n = n,
          .k = k,
          .flops = 2 * m * n * k,
          .bytes = bytes_of(args.dy, args.x, args.offsets) + 2 * bytes_of(args.dw)};
}

OpCost cost_transfer(Tensor x) { return by_elements(x, 0, 2 * bytes_of(x)); }

}  // namespace echelon
