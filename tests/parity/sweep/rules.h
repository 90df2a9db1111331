// What is refused, and why.
#pragma once

#include "parity/sweep/axes.h"

namespace echelon::testing {

[[nodiscard]] std::vector<Rule> refusals(const std::vector<SweepAxis>& axes);

}  // namespace echelon::testing
