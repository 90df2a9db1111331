// Mixtures of experts (Shazeer et al. 2017) without padding (Gale et al. 2022). Each of N tokens goes to k of E
// experts, which makes R = N k rows: those of one expert are adjacent, expert after expert, and those of expert e are
// offsets[e] up to offsets[e + 1]. The host never learns how many they are. Rows from offsets[E] on are unused: they
// are left alone, and their values mean nothing.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// slots[n, j] = the row of token n at its j-th expert, int32 [N, k]. An expert's rows are in the order of tokens, then
/// of j. The experts, int32 [N, k], of this shard are first_expert up to first_expert + E; a token has no row at
/// others: slot -1. offsets int32 [E + 1], E from 1 to most_experts.
struct ExpertSlotsArgs {
  Tensor experts, slots, offsets;
  std::int64_t first_expert = 0;
};
inline constexpr std::int64_t most_experts = 8192;

/// The order of rows that have come from P ranks, ordered by rank, to the one with E experts from first_expert on. They
/// are to be ordered by expert, and then by rank. slots int32 [Q, 1]: of the rows from first_row on in the order in
/// which they come, -1 where none comes. of_ranks int32 [P, all experts + 1]: the offsets of each rank. offsets int32
/// [E + 1].
struct ArrivedSlotsArgs {
  Tensor of_ranks, slots, offsets;
  std::int64_t first_expert = 0, first_row = 0;
};

/// y[slots[n, j]] = x[n]. x [N, D], y [R, D]. Its gradient is combine_experts without weights.
struct PermuteToExpertsArgs {
  Tensor x, slots, y;
};
/// out[n] = sum_j weights[n, j] y[slots[n, j]] in the order of j, without those that have no slot. weights [N, k] in
/// accumulate_dtype; ones by default.
struct CombineExpertsArgs {
  Tensor y, slots, out;
  Tensor weights = {};
};
/// dy[slots[n, j]] = weights[n, j] dout[n], dweights[n, j] = <dout[n], y[slots[n, j]]>, zero without a slot. dy may be
/// y.
struct CombineExpertsBackwardArgs {
  Tensor dout, y, slots, weights, dy, dweights;
};

}  // namespace echelon
