// Explanations of a difference. Each function examines only the values and returns all explanations that fit, the most
// likely first.
#pragma once

#include "verify/finding.h"

#include <vector>

namespace echelon {

/// For a gradient: ranks or microbatches that do not count exactly once, in terms of the reference or of each rank's
/// addend before any sum.
[[nodiscard]] std::vector<Finding> explain_gradient(const Case& at, const Difference& difference);
/// For what routers counted, with the right loss: counts, losses or biases of other tokens.
[[nodiscard]] std::vector<Finding> explain_router(const Case& at, const Difference& difference);
/// For a gradient norm with right gradients: parameters that count more or less than once.
[[nodiscard]] std::vector<Finding> explain_norm(const Case& at, const Difference& difference);
/// For weights with a right gradient: stale copies, and wrong boundaries between shards and slices.
[[nodiscard]] std::vector<Finding> explain_weight(const Case& at, const Difference& difference);
/// For the reads of layers in the forward or backward passes of a step: the first tensor that differs, and its fault.
/// The kind is unknown if no known fault fits. Empty if all reads are right.
[[nodiscard]] std::vector<Finding> explain_activations(const Case& at, std::int64_t step, bool is_backward);
/// For a loss with right activations.
[[nodiscard]] std::vector<Finding> explain_loss(const Case& at, const Difference& difference);

}  // namespace echelon
