// The router of a mixture of experts: scores of N tokens for E experts, the k experts of each token, and their weights.
//
//     s = softmax(z) or sigmoid(z)                   over the experts of a token, in the dtype of z
//     chosen: the k largest of z, or of s + bias     of two that are equal, the lower expert
//     w_j = scale s_j / (1 or sum_i s_i + 1e-20)     over the chosen ones, in descending order
//
// DeepSeek (2024, arXiv:2405.04434; arXiv:2412.19437) chooses groups of neighbouring experts first, by the best or the
// sum of the two best of a group. z alone decides where s would give the same order, so that rounding does not. NaN is
// chosen last, so each index is that of an expert; all weights of a token with a NaN are NaN.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

enum class ExpertScores : std::uint8_t { softmax, sigmoid };
enum class GroupScore : std::uint8_t { best, sum_of_two };

struct RouterRule {
  ExpertScores scores = ExpertScores::softmax;
  bool normalises = false;  // the weights of a token add up to `scale`
  double scale = 1.0;
  std::int64_t num_groups = 1, num_chosen_groups = 1;
  GroupScore group_score = GroupScore::best;
};
inline constexpr std::int64_t most_expert_groups = 32;

/// logits [N, E] in accumulate_dtype, experts int32 [N, k], weights [N, k] like logits; bias float32 [E] is optional.
/// A token whose entry of is_routed (int32 [N]) is 0 is padding: its experts are -1 and its weights 0. All are routed
/// without it.
struct ChooseExpertsArgs {
  Tensor logits, experts, weights;
  Tensor bias = {}, is_routed = {};
  RouterRule rule = {};
};
/// The gradient of logits from that of the weights of the experts that were chosen. There is none through the choice
/// and the bias. With addend [N, E], of the dtype of logits, that is added before dlogits [N, E] is rounded to its
/// dtype: that of the activations, or of logits. A token without a choice has the gradient 0.
struct ChooseExpertsBackwardArgs {
  Tensor logits, experts, dweights, dlogits;
  Tensor addend = {};
  RouterRule rule = {};
};

/// y[slots[n, j]] = weights[n, j] x[slots[n, j]] on rows of experts [R, D] (ops/operations/mixture/experts.h). y may be
/// x.
struct WeightRowsArgs {
  Tensor x, slots, weights, y;
};
/// dx[r] = weights[n, j] dy[r] with r = slots[n, j], and dweights[n, j] = <dy[r], x[r]>, zero without a slot. With y,
/// y[r] = weights[n, j] x[r] is recomputed. dx may be dy, and y may be x.
struct WeightRowsBackwardArgs {
  Tensor dy, x, slots, weights, dx, dweights;
  Tensor y = {};
};

}  // namespace echelon
