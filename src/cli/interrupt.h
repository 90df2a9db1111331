// Signals that ask the program for something: Ctrl-C (SIGINT), SIGTERM of a scheduler, SIGHUP of a lost terminal,
// SIGUSR1 before a time limit, and SIGUSR2 for a checkpoint. They end commands that leave nothing half done, and are
// requests for the others.
#pragma once

#include "base/error.h"
#include "engine/run_requests.h"

namespace echelon {

/// From now on Ctrl-C ends the program at once, with status 130.
void end_on_interrupt();

/// From now on the requests of watch_for_requests to end do so at once, with the same status, since nothing has been
/// started; one to save has no effect.
void end_on_requests();

/// From now on these signals are requests: SIGINT to end, SIGTERM, SIGHUP and SIGUSR1 to end and be started again,
/// SIGUSR2 to save. Those that end the run count as one for five seconds, since launchers forward what schedulers send
/// to the ranks as well. A later one, or a second Ctrl-C, ends the program at once, with 128 and its number as status.
/// A signal that was ignored before (nohup) stays ignored. A closed pipe ends nothing: writing to it fails.
[[nodiscard]] const RunRequests& watch_for_requests();

/// From now on a file at the limit of its size (SIGXFSZ) is an error of its write.
void ignore_file_size_signal();

/// Of a command that was stopped: 128 and the number of the signal that this process received, 130 if another one did.
[[nodiscard]] ExitStatus status_of_interrupt();

}  // namespace echelon
