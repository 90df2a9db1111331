// What each operation costs, one function per operation: the only formulas for flops and bytes.
//
// Flops: a multiply-add is two; a comparison, division, exp, log, tanh or square root counts as one. Attention counts
// its matrix products alone, and of those the part that the causal mask leaves, as the papers do. Bytes: every operand
// read once and every result written once; what is added to counts twice.
#pragma once

#include "ops/ops.h"

namespace echelon {

/// m, n, k: of a matrix product; (B heads, visible pairs of a head, head width) of attention; else (rows, columns, 1)
/// or (elements, 1, 1).
struct OpCost {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  bool operator==(const OpCost&) const = default;
};

/// Pairs (query, key) of one head that the causal mask leaves: query i sees keys 0 .. i + diagonal. Where documents
/// begin and end stands in the data, which a trace has not: pairs of two documents count here though nobody forms them.
[[nodiscard]] std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys, std::int64_t diagonal);
/// The last query sees the last key.
[[nodiscard]] inline std::int64_t num_visible_pairs(std::int64_t num_queries, std::int64_t num_keys) {
  return num_visible_pairs(num_queries, num_keys, num_keys - num_queries);
}

[[nodiscard]] OpCost cost(const MatmulArgs& args);
[[nodiscard]] OpCost cost(const EmbeddingArgs& args);
[[nodiscard]] OpCost cost(const EmbeddingBackwardArgs& args);
[[nodiscard]] OpCost cost(const PositionsArgs& args);
[[nodiscard]] OpCost cost(const PositionsBackwardArgs& args);
[[nodiscard]] OpCost cost(const LayerNormArgs& args);
[[nodiscard]] OpCost cost(const LayerNormBackwardInputArgs& args);
[[nodiscard]] OpCost cost(const LayerNormBackwardWeightArgs& args);
[[nodiscard]] OpCost cost(const LayerNormBackwardArgs& args);
[[nodiscard]] OpCost cost(const RmsNormArgs& args);
[[nodiscard]] OpCost cost(const RmsNormBackwardInputArgs& args);
[[nodiscard]] OpCost cost(const RmsNormBackwardWeightArgs& args);
[[nodiscard]] OpCost cost(const RmsNormBackwardArgs& args);
[[nodiscard]] OpCost cost(const RopeArgs& args);
[[nodiscard]] OpCost cost(const AttentionArgs& args);
[[nodiscard]] OpCost cost(const AttentionBackwardArgs& args);
[[nodiscard]] OpCost cost(const MergeAttentionArgs& args);
[[nodiscard]] OpCost cost(const GeluArgs& args);
[[nodiscard]] OpCost cost(const GeluBackwardArgs& args);
[[nodiscard]] OpCost cost(const SwigluArgs& args);
[[nodiscard]] OpCost cost(const SwigluBackwardArgs& args);
[[nodiscard]] OpCost cost(const RowExpArgs& args);
[[nodiscard]] OpCost cost(const RescaleSumsArgs& args);
[[nodiscard]] OpCost cost(const CrossEntropyArgs& args);
[[nodiscard]] OpCost cost(const CrossEntropyBackwardArgs& args);
[[nodiscard]] OpCost cost(const GradientFactorArgs& args);
[[nodiscard]] OpCost cost(const AdamWArgs& args);
[[nodiscard]] OpCost cost(const ExpertSlotsArgs& args);
[[nodiscard]] OpCost cost(const PermuteToExpertsArgs& args);
[[nodiscard]] OpCost cost(const CombineExpertsArgs& args);
[[nodiscard]] OpCost cost(const CombineExpertsBackwardArgs& args);
[[nodiscard]] OpCost cost(const GroupedMatmulArgs& args);
[[nodiscard]] OpCost cost(const GroupedMatmulBackwardWeightArgs& args);

[[nodiscard]] OpCost cost_add_bias(Tensor y_ND, Tensor bias_D);
[[nodiscard]] OpCost cost_bias_backward(Tensor dy_ND, Tensor dbias_D);
[[nodiscard]] OpCost cost_add(Tensor out, Tensor a, Tensor b);
[[nodiscard]] OpCost cost_copy(Tensor out, Tensor x);
[[nodiscard]] OpCost cost_fill(Tensor out);
[[nodiscard]] OpCost cost_scale(Tensor x);
[[nodiscard]] OpCost cost_sum_of_squares(Tensor x, Tensor sum);
[[nodiscard]] OpCost cost_transfer(Tensor x);  // upload, download

}  // namespace echelon
