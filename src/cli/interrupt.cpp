#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <ctime>

namespace echelon {
namespace {

constexpr int after_signals = 128;  // of a shell's statuses
static_assert(after_signals + SIGINT == static_cast<int>(ExitStatus::interrupted));

// A signal handler receives only the signal's number, so what it sets is global.
RunRequests requests;
std::atomic<int> first_signal = SIGINT;
std::atomic<std::time_t> first_second = 0;
static_assert(std::atomic<RunRequest>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<std::time_t>::is_always_lock_free);

constexpr std::time_t seconds_of_one_request = 5;

std::time_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

void end_at_once(int signal) { _exit(after_signals + signal); }

constexpr int requests_to_end[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

void end_before_start(int signal) {
  _exit(static_cast<int>(signal == SIGINT ? ExitStatus::interrupted : ExitStatus::restart));
}

void ask_to_end(int signal) {
  const RunRequest request = signal == SIGINT ? RunRequest::interrupt : RunRequest::restart;
  const RunRequest before = requests.end;
  if (before == RunRequest::none) {
    first_signal = signal;
    first_second = now();
    requests.end = request;
  } else if (now() - first_second > seconds_of_one_request || (signal == SIGINT && before == RunRequest::interrupt)) {
    end_at_once(signal);
  }
}

void ask_to_save(int /*signal*/) { ++requests.num_saves; }

void handle(int signal, void (*handler)(int)) {
  if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace

void end_on_interrupt() { handle(SIGINT, end_at_once); }

void end_on_requests() {
  for (const int signal : requests_to_end) handle(signal, end_before_start);
  handle(SIGUSR2, [](int) {});
}

const RunRequests& watch_for_requests() {
  for (const int signal : requests_to_end) handle(signal, ask_to_end);
  handle(SIGUSR2, ask_to_save);
  std::signal(SIGPIPE, SIG_IGN);
  return requests;
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

ExitStatus status_of_interrupt() { return static_cast<ExitStatus>(after_signals + first_signal); }

}  // namespace echelon
