// The gradient of a step as the sum of what each microbatch of each data rank adds to it, computed by one rank: the
// sequences of all others have their targets ignored. With it, any wrong weighting of ranks and microbatches can be
// read off a gradient.
#pragma once

#include "engine/verify/combination.h"
#include "engine/verify/finding.h"

namespace echelon {

/// What sequences a part holds: of one microbatch and one data rank; -1: of all.
struct BatchPart {
  int microbatch = -1, data_rank = -1;
};

struct GradientParts {
  std::vector<BatchPart> parts = {};
  std::vector<double> num_targets = {};  // of each part
  std::vector<double> mean_losses = {};  // over these targets
  std::vector<Numbers> gradients = {};   // whole tensors; their sum is the gradient
  bool has_microbatches = false, has_data_ranks = false;
};

/// By microbatch and data rank if these are few, else by each alone: any of the lists may explain a gradient.
[[nodiscard]] std::vector<GradientParts> gradient_parts(const Case& at, const std::string& tensor, std::int64_t step);

}  // namespace echelon
