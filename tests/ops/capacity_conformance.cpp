// Rows within the capacity of experts on every backend: several sequences in any order, tokens without experts, equal
// weights and NaN.
#include "conformance.h"

#include <fmt/format.h>

#include <limits>

namespace echelon {
namespace {

TEST_P(OpsConformance, LimitExperts) {
  struct Case {
    std::int64_t M, k, E, tokens_per_sequence, capacity, first_token, N;
  };
  for (const auto& [M, k, E, T, capacity, first_token, N] : {Case{1, 1, 1, 1, 1, 0, 1},
                                                             {12, 2, 3, 6, 2, 0, 12},
                                                             {12, 2, 3, 6, 100, 3, 5},
                                                             {35, 3, 7, 7, 1, 30, 5},
                                                             {400, 4, 9, 100, 31, 100, 200},
                                                             {8, 2, 4, 8, 2, 4, 0}}) {
    std::vector<std::int32_t> experts, places;
    Numbers weights = Numbers::random(sums, {M, k}, 1);
    for (std::int64_t n = 0; n < M; ++n) {
      places.push_back(static_cast<std::int32_t>(1 + M - 1 - n));  // the last token first
      for (std::int64_t j = 0; j < k; ++j) {
        experts.push_back(n % 7 == 6 ? -1 : static_cast<std::int32_t>((n * n + j) % E));
        if (n % 3 == 1) weights.set(n * k + j, n % 2 == 0 ? 0.25 : std::numeric_limits<double>::quiet_NaN());
      }
    }
    const Tensors tensors = {Numbers::tokens(experts), Numbers::tokens(places), Numbers(DType::int32, {N, k})};
    const auto limit = [&](Ops& ops, Tensors& t, const Tensor& by) {
      const Tensor all = t[0].tensor().reshaped({M, k});
      ops.limit_experts({.experts = all.rows(first_token, N),
                         .of_sequences = all,
                         .places = t[1],
                         .kept = t[2],
                         .weights = by,
                         .first_token = first_token,
                         .tokens_per_sequence = T,
                         .capacity = capacity});
    };
    const std::string name = fmt::format("limit_experts {} {} {}", M, k, capacity);
    compare(name, tensors, [&](Ops& ops, Tensors& t) { limit(ops, t, {}); });
    Tensors with_weights = tensors;
    with_weights.push_back(weights);
    compare(name + " by weight", with_weights, [&](Ops& ops, Tensors& t) { limit(ops, t, t[3]); });
  }
}

}  // namespace
}  // namespace echelon
