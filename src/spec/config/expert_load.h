// How unevenly the experts of a mixture are loaded, where no run says it: what `plan` and `simulate` assume. All
// sequences load them equally.
#pragma once

#include "spec/mixture_spec.h"

#include <string>
#include <vector>

namespace echelon {

struct ExpertLoad {
  // Expert number i of a fixed random order is chosen in proportion to 1 / i^zipf; 0: all equally.
  double zipf = 0;
  // Measured rows of each expert, by layer with experts; empty: none.
  std::vector<std::vector<double>> rows_of_layers = {};
  std::string name = "balanced";
  bool operator==(const ExpertLoad&) const = default;

  [[nodiscard]] bool is_balanced() const { return zipf == 0 && rows_of_layers.empty(); }
};

/// Of `num_ranks` that divide the experts of a layer, the parts of all rows that each one computes, the most loaded
/// first; of several layers the mean. They sum to 1. No expert is chosen twice by a token.
[[nodiscard]] std::vector<double> shares_of_ranks(const ExpertLoad& load, const MixtureSpec& mixture, int num_ranks);

}  // namespace echelon
