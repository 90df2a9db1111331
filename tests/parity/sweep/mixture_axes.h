// The axes that mixtures of experts have besides those of all models.
#pragma once

#include "parity/sweep/axes.h"

namespace echelon::testing {

/// `axes` for the families with experts, without those that experts refuse, and the axes of experts.
[[nodiscard]] std::vector<SweepAxis> with_mixture_axes(std::vector<SweepAxis> axes);

}  // namespace echelon::testing
