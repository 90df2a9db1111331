// Routers that are told what to choose: tokens can be spread over experts as badly as can be.
#pragma once

#include "parity/training_run.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace echelon::testing {

/// The expert of token n of a sequence at its j-th place.
using Choice = std::function<std::int32_t(std::int64_t n, std::int64_t j)>;

/// Chooses for the router, which gives the experts the weights of those that it chose. Padding stays without a choice.
[[nodiscard]] Interpose forced(const Choice& choice, std::int64_t seq_len);
/// The same with a choice of each layer, without a pipeline.
[[nodiscard]] Interpose forced_by_layer(const std::vector<Choice>& choices, std::int64_t seq_len);

}  // namespace echelon::testing
