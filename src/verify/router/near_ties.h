// How close a router's choice was, and the weights of another choice: of one token, in float64.
#pragma once

#include "ops/operations/mixture/router.h"

#include <span>
#include <vector>

namespace echelon {

struct RoutedToken {
  std::vector<double> logits = {};  // [E]
  std::vector<double> bias = {};    // [E]; empty: none
  RouterRule rule = {};
};

/// The largest difference of the values that decide between an expert that was chosen alone and one of the other choice
/// alone. Of experts in different groups, that of their groups decides if it is smaller.
[[nodiscard]] double gap_between(const RoutedToken& token, std::span<const std::int32_t> chosen,
                                 std::span<const std::int32_t> other);
/// The largest magnitude of such a value, at least 1.
[[nodiscard]] double largest_score(const RoutedToken& token);
/// Of `experts`, in their order, by the rule of ops/operations/mixture/router.h.
[[nodiscard]] std::vector<double> weights_of(const RoutedToken& token, std::span<const std::int32_t> experts);

}  // namespace echelon
