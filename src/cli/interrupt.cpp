#include "cli/interrupt.h"

#include "base/error.h"

#include <unistd.h>

#include <csignal>

namespace echelon {
namespace {

// A signal handler receives only the signal's number, so the flag that it sets is global.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void end_at_once(int /*signal*/) { _exit(static_cast<int>(ExitStatus::interrupted)); }

void ask_to_stop(int /*signal*/) {
  interrupted = true;
  end_on_interrupt();
}

}  // namespace

void end_on_interrupt() { std::signal(SIGINT, end_at_once); }

const std::atomic<bool>& watch_for_interrupt() {
  std::signal(SIGINT, ask_to_stop);
  return interrupted;
}

}  // namespace echelon
