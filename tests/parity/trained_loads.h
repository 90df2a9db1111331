// Loads of a trained router: of each layer, the rows of 16 experts of two for a token, in the last of 300 steps. Made
// by `benchmarks/mixtures/run --only 'mixture, a = 0.03' --seeds 1 --record tests/parity/trained_loads.json`.
#pragma once

#include "parity/forced_router.h"

#include <cstdint>
#include <vector>

namespace echelon::testing {

[[nodiscard]] std::vector<std::vector<std::int64_t>> trained_loads();

/// Two experts for each of so many tokens of a sequence, in proportion to the loads, of which none is above a half.
[[nodiscard]] Choice choice_with(const std::vector<std::int64_t>& loads, std::int64_t num_tokens);

/// Of equal parts of the experts, the largest load over the mean.
[[nodiscard]] double largest_part(const std::vector<std::int64_t>& loads, std::int64_t num_parts);

}  // namespace echelon::testing
