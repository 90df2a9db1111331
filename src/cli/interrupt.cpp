#include "cli/interrupt.h"

#include <csignal>

namespace echelon {
namespace {

// A signal handler is given nothing but the signal's number, so what it sets cannot be passed to it.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& watch_for_interrupt() {
  std::signal(SIGINT, on_interrupt);
  return interrupted;
}

}  // namespace echelon
