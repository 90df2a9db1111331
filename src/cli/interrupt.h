// Ctrl-C as a wish that a run can grant between two steps.
#pragma once

#include <atomic>

namespace echelon {

/// From now on the first Ctrl-C sets the flag that is returned; a second one ends the program at once.
[[nodiscard]] const std::atomic<bool>& watch_for_interrupt();

}  // namespace echelon
