// The explanations that a difference may have. Each looks at the numbers alone and returns all that fit, the likeliest
// first; none fits: nothing.
#pragma once

#include "verify/finding.h"

#include <vector>

namespace echelon {

/// Of a gradient: ranks or microbatches that count other than once, in the reference's terms or in those of what each
/// rank had before any sum.
[[nodiscard]] std::vector<Finding> explain_gradient(const Case& at, const Difference& difference);
/// Of a gradient norm beside right gradients: parameters that count more or less than once.
[[nodiscard]] std::vector<Finding> explain_norm(const Case& at, const Difference& difference);
/// Of weights beside a right gradient: copies that are older than they should be, borders between shards and slices
/// that lie elsewhere.
[[nodiscard]] std::vector<Finding> explain_weight(const Case& at, const Difference& difference);
/// Of what layers read in a step, in the forward or in the backward passes: the first such tensor that differs, and
/// what is wrong with it; of an unknown kind if it is like nothing that we know. Nothing if all of them are right.
[[nodiscard]] std::vector<Finding> explain_activations(const Case& at, std::int64_t step, bool is_backward);
/// Of a loss beside right activations.
[[nodiscard]] std::vector<Finding> explain_loss(const Case& at, const Difference& difference);

}  // namespace echelon
