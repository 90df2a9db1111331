// The table of axes as docs/internals/parity.md shows it.
#pragma once

#include "parity/sweep/axes.h"

namespace echelon::testing {

/// In Markdown: the axes with their settings, and the combinations that are rejected, with the reason.
[[nodiscard]] std::string compatibility(const SweepTable& table);
/// The axes that `other` has not, or not with these settings.
[[nodiscard]] std::string axes_beyond(const SweepTable& other, const SweepTable& table);

}  // namespace echelon::testing
