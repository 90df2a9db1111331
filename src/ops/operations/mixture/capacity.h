// The capacity of an expert (GShard, Lepikhin et al. 2020, arXiv:2006.16668): of the rows of a sequence it takes the
// first ones, and drops the others. First are those of earlier positions; or those with larger weights, and of equal
// weights those of earlier positions. The order by weights is not causal: later tokens decide which rows are dropped.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// kept[n, j] = experts[n, j] if its row is among the first `capacity` rows of that expert in the token's sequence,
/// else -1. experts and kept int32 [N, k], -1 where a token has none. of_sequences int32 [M, k] has all tokens of whole
/// sequences in any order, these from first_token on. places int32 [M]: 1 + s tokens_per_sequence + the position in
/// sequence s; 0 for a token without experts. With weights [M, k] (float32 or float64) the order is by weights, where
/// NaN is last.
struct LimitExpertsArgs {
  Tensor experts, of_sequences, places, kept;
  Tensor weights = {};
  std::int64_t first_token = 0, tokens_per_sequence = 1, capacity = 1;
};

}  // namespace echelon
