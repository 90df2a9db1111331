#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <ctime>
#include <initializer_list>

namespace echelon {
namespace {

constexpr int after_signals = 128;  // of a shell's statuses
static_assert(after_signals + SIGINT == static_cast<int>(ExitStatus::interrupted));
static_assert(after_signals + SIGTERM == static_cast<int>(ExitStatus::terminated));
static_assert(after_signals + SIGHUP == static_cast<int>(ExitStatus::hung_up));

// A signal handler receives only the signal's number, so what it sets is global.
std::atomic<bool> interrupted = false;
std::atomic<int> first_signal = SIGINT;
std::atomic<std::time_t> first_second = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<std::time_t>::is_always_lock_free);

// Launchers forward what schedulers send to the ranks as well.
constexpr std::time_t seconds_of_one_request = 5;

std::time_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

void end_at_once(int signal) { _exit(after_signals + signal); }

void ask_to_stop(int signal) {
  if (!interrupted.exchange(true)) {
    first_signal = signal;
    first_second = now();
  } else if (signal == SIGINT || now() - first_second > seconds_of_one_request) {
    end_at_once(signal);
  }
}

}  // namespace

void end_on_interrupt() { std::signal(SIGINT, end_at_once); }

const std::atomic<bool>& watch_for_interrupt() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, ask_to_stop) == SIG_IGN && signal == SIGHUP) std::signal(signal, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  return interrupted;
}

ExitStatus status_of_interrupt() { return static_cast<ExitStatus>(after_signals + first_signal); }

}  // namespace echelon
