// Zero bubble's first step (Qi et al. 2023, arXiv:2401.10241, section 2): a backward computes the gradient of the
// input, which another rank waits for, and the gradient of the weights. No rank waits for the latter, so it can fill a
// bubble.
#pragma once

#include "schedule/schedule.h"

namespace echelon {

/// The order with each backward split. The input part keeps its place. The weight part follows the input part of the
/// backward that is `delay` later; the remaining ones are at the end.
[[nodiscard]] ComputeOrder defer_weight_gradients(const ComputeOrder& order, int delay);

}  // namespace echelon
