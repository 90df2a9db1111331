// The addends of a step's gradient, one for each microbatch of each replica, and of each part of its tokens that a cp
// rank holds. One rank computes each with all other targets ignored. The addends reveal any wrong weighting of ranks
// and microbatches.
#pragma once

#include "verify/combination.h"
#include "verify/finding.h"

namespace echelon {

/// Targets of a batch: of one microbatch, one replica (blueprint/batch_layout.h) and one cp rank; -1: of all.
struct BatchSubset {
  int microbatch = -1, replica = -1, part = -1;
};

struct GradientAddends {
  std::vector<BatchSubset> subsets = {};
  std::vector<double> num_targets = {};  // targets of each subset
  std::vector<double> mean_losses = {};  // mean over these targets
  std::vector<Values> gradients = {};    // whole tensors; their sum is the gradient
  bool has_microbatches = false, has_replicas = false, has_parts = false;
};

/// By microbatch, replica and part if these are few, else by each alone. Any of the lists may explain a gradient.
[[nodiscard]] std::vector<GradientAddends> gradient_addends(const Case& at, const std::string& tensor,
                                                            std::int64_t step);

}  // namespace echelon
