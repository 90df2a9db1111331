// data.balance_batch: which sequences of a global batch are computed on which replica and in which microbatch, so that
// all have about as many pairs (query, key).
#pragma once

#include "blueprint/batch_layout.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Element layout.sequence_at(place) is the sequence of the global batch that is computed at that place. `pairs`: of
/// each sequence. The largest come first: each goes to the replica that has the fewest pairs so far, and there to such
/// a microbatch, of those that have room; the first of several. A pure function, hence the same on every rank.
[[nodiscard]] std::vector<std::int64_t> balanced_order(const BatchLayout& layout, std::span<const std::int64_t> pairs);

/// Of the largest of some numbers of pairs to their mean; 1 if there are none.
[[nodiscard]] double largest_over_mean(std::span<const std::int64_t> pairs);

}  // namespace echelon
