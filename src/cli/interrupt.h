// Signals that ask the program to stop: Ctrl-C (SIGINT), SIGTERM of a scheduler and SIGHUP of a lost terminal. They end
// commands that leave nothing half done, and set a flag for the others.
#pragma once

#include "base/error.h"

#include <atomic>

namespace echelon {

/// From now on Ctrl-C ends the program at once, with status 130.
void end_on_interrupt();

/// From now on the first of these signals sets the flag that is returned. A second Ctrl-C, or
/// another one more than five seconds later, ends the program at once, with 128 and its number as status. A SIGHUP that
/// was ignored before (nohup) stays ignored. A closed pipe ends nothing: writing to it fails.
[[nodiscard]] const std::atomic<bool>& watch_for_interrupt();

/// Of a command that was stopped: 128 and the number of the signal that this process received, 130 if another one did.
[[nodiscard]] ExitStatus status_of_interrupt();

}  // namespace echelon
