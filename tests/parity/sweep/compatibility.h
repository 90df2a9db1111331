// The table of axes as docs/parity.md shows it.
#pragma once

#include "parity/sweep/axes.h"

namespace echelon::testing {

/// In Markdown: the axes with their settings, which of them go together, and why others do not.
[[nodiscard]] std::string compatibility(const SweepTable& table);

}  // namespace echelon::testing
