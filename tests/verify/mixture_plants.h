// Injected faults of mixtures of experts.
#pragma once

#include "verify/plants.h"

namespace echelon::testing {

/// The second expert of each token becomes the one after it that is not its first; k = 2.
void change_second_experts(Ops& ops, Tensor experts, std::int64_t num_experts);

/// The reduced gradients of experts are divided by `n`.
[[nodiscard]] Seed divided_experts(int n);
/// They are multiplied by it.
[[nodiscard]] Seed multiplied_experts(int n);
/// The norm divides the squares of experts by `n`.
[[nodiscard]] Seed averaged_experts_in_norm(int n);
/// The biases of choices move by the counts of the rank alone.
[[nodiscard]] Seed bias_of_own_counts();
/// The loss of a sequence has the counts of the rank's part.
[[nodiscard]] Seed loss_of_a_part();
/// Two rows change places when they come back from their experts.
[[nodiscard]] Seed rows_in_another_order();
/// Of the four ranks with features of an expert, only the first is in the sum of a row.
[[nodiscard]] Seed rows_of_one_addend();
/// Nothing comes back from the last round of an exchange.
[[nodiscard]] Seed lost_last_round();
/// The rows of the last round are on this rank as they were sent.
[[nodiscard]] Seed unreturned_rows();
/// Backward passes count the rows of experts twice.
[[nodiscard]] Seed counted_by_recomputation();
/// The second expert of each token is the one after it.
[[nodiscard]] Seed wrong_choices();

}  // namespace echelon::testing
