// Ctrl-C: ends commands that leave nothing half done, and sets a flag for the others.
#pragma once

#include <atomic>

namespace echelon {

/// From now on Ctrl-C ends the program at once, with status 130.
void end_on_interrupt();

/// From now on the first Ctrl-C sets the flag that is returned; a second one ends the program at once, with status 130.
[[nodiscard]] const std::atomic<bool>& watch_for_interrupt();

}  // namespace echelon
