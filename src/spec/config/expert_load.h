// The load of each expert that `plan` and `simulate` assume, since there is no run that would tell. It is the same for
// every sequence.
#pragma once

#include "spec/mixture_spec.h"

#include <string>
#include <vector>

namespace echelon {

struct ExpertLoad {
  // In a fixed random order, the i-th expert is chosen in proportion to 1 / i^zipf; 0: all equally.
  double zipf = 0;
  // Measured rows of each expert, by layer with experts; empty: none.
  std::vector<std::vector<double>> rows_of_layers = {};
  std::string name = "balanced";
  bool operator==(const ExpertLoad&) const = default;

  [[nodiscard]] bool is_balanced() const { return zipf == 0 && rows_of_layers.empty(); }
};

/// The fraction of a layer's rows on each of `num_ranks` that divide its experts, the most loaded rank first; of
/// several layers the mean. An expert has at most one row of each token, 1 / num_experts_per_tok of all, and takes at
/// most the fraction `capacity`. Fractions sum to 1, or to less by what is dropped.
[[nodiscard]] std::vector<double> shares_of_ranks(const ExpertLoad& load, const MixtureSpec& mixture, int num_ranks,
                                                  double capacity = 1);

}  // namespace echelon
