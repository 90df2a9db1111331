// What the routers of a model share with the step: counts and losses of the current step, and what they know of the
// steps before. M: layers with a mixture of experts; every rank has the rows of all of them.
#pragma once

#include "ops/operations/mixture/balance.h"
#include "spec/model_spec.h"

namespace echelon {

/// Of a row of sums: E counts of experts, the losses, the tokens whose weights are NaN, and the rows that were dropped.
struct RouterSums {
  std::int64_t num_experts = 0;

  [[nodiscard]] std::int64_t num_columns() const { return num_experts + num_router_losses + 2; }
  [[nodiscard]] std::int64_t losses() const { return num_experts; }
  [[nodiscard]] std::int64_t num_nan() const { return num_experts + num_router_losses; }
  [[nodiscard]] std::int64_t num_dropped() const { return num_nan() + 1; }
};

/// Of a row of counts, where experts are over ranks: what ExpertTraffic has of them.
struct ExchangeCounts {
  static constexpr std::int64_t num_exchanges = 0, num_rounds = 1, rows_again = 2, num_columns = 3;
};

/// [M, E] of a model whose choices have a bias; else empty sizes.
[[nodiscard]] inline Sizes router_bias_sizes(const ModelSpec& model) {
  const std::int64_t num_layers = model.mixture.num_layers_of(model.num_hidden_layers);
  return model.mixture.has_bias && num_layers > 0 ? Sizes{num_layers, model.mixture.num_experts} : Sizes();
}

/// Empty where there are no mixtures, and in passes without a gradient; `loads` and `bias` where they are not used.
struct RouterState {
  Tensor sums;         // float64 [M, RouterSums::num_columns()]: added to
  Tensor loads;        // float64 [M, E]: rows of each expert in the step before
  Tensor bias;         // float32 [M, E]: of the choice
  Tensor num_targets;  // float64 [1], over all ranks
};

}  // namespace echelon
