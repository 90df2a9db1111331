// How evenly the experts of a mixture are loaded, and what evens it out: losses of the router, and a bias of its
// choice. A loss compares the part f_e of rows that expert e has with the mean of its scores; f has no gradient.
//
//     p = softmax(z), or sigmoid(z) divided by its sum       over the experts of a token
//     sequence   E sum_e f_e mean(p_e)   over the T tokens of a sequence, averaged over sequences (DeepSeek-V3)
//     global     the same over all tokens of a step, with the f of the step before: counts of a step are known at its
//                end, and gradients must not depend on how it is divided into microbatches
//     z          mean of log(sum_e exp z_e)^2 over all tokens (Zoph et al. 2022, arXiv:2202.08906)
//     bias_e += rate sign(mean count - count_e)   once a step (Wang et al. 2024, arXiv:2408.15664)
#pragma once

#include "ops/operations/mixture/router.h"

namespace echelon {

/// counts[s, e] += rows of expert e among the tokens of sequence s. Tokens are numbered through all sequences, of
/// tokens_per_sequence each, and the first one is number first_token. experts int32 [N, k], where a token without a
/// choice has -1; counts float64 [S, E]. With weights [N, k], num_nan (float64 [1]) += tokens with a NaN. With slots
/// [N, k], num_dropped (float64 [1]) += rows of an expert without a slot: they are counted, too.
struct CountExpertsArgs {
  Tensor experts, counts;
  Tensor weights = {}, num_nan = {};
  Tensor slots = {}, num_dropped = {};
  std::int64_t first_token = 0, tokens_per_sequence = 1;
};

/// Coefficients of the losses, and the sizes of their means.
struct RouterLosses {
  double sequence = 0, global = 0, z = 0;
  double tokens_per_sequence = 1, num_tokens = 1;  // of a whole sequence, and of a step over all ranks
  double expected_targets = 1;                     // as in gradient_factor

  [[nodiscard]] bool exist() const { return sequence != 0 || global != 0 || z != 0; }
  bool operator==(const RouterLosses&) const = default;
};
/// gradient [N, E] = that of the losses of these tokens, times num_targets / expected_targets and loss_scale (1 by
/// default): gradient_factor divides by both. losses (float64 [3]: sequence, global, z) += their addends, with
/// coefficients; zero in a step without targets. A token without a choice has none. gradient is like logits; counts
/// float64 [S, E] of whole sequences, for `sequence`. loads float64 [E], for `global`: rows in the step before, or
/// zeros, which stand for even loads. Tokens as in CountExpertsArgs.
struct RouterLossesArgs {
  Tensor logits, experts, gradient, losses, num_targets;
  Tensor counts = {}, loads = {}, loss_scale = {};
  RouterLosses rule = {};
  ExpertScores scores = ExpertScores::softmax;
  std::int64_t first_token = 0, tokens_per_sequence = 1;
};
inline constexpr std::int64_t num_router_losses = 3;

/// The end of a step: loads float64 [M, E] become the counts of M layers over all ranks, the first E columns of counts
/// float64 [M, columns], and bias float32 [M, E] the next one. Counts are compared as integers, so all ranks get the
/// same bits. Either may be left out. Nothing changes if factor (of gradient_factor) is NaN: the step is skipped.
struct BalanceExpertsArgs {
  Tensor counts, factor;
  Tensor loads = {}, bias = {};
  double rate = 0;
};

}  // namespace echelon
