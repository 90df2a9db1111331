#include "comm/thread/returns.h"

#include "base/text/printable.h"
#include "base/text/tell.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace echelon {
namespace {

constexpr std::chrono::milliseconds watch_interval(100);
constexpr unsigned seconds_to_print = 5;  // after which SIGALRM ends the process

}  // namespace

void Returns::add(int rank) {
  const std::lock_guard lock(mutex_);
  has_returned_[static_cast<std::size_t>(rank)] = true;
  last_return_ = std::chrono::steady_clock::now();
  if (++num_returned_ == static_cast<int>(has_returned_.size())) changed_.notify_one();
}

std::vector<int> Returns::await(int num_ranks) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, watch_interval, [&] { return num_returned_ == num_ranks; })) {
    const Deadline now = std::chrono::steady_clock::now();
    if (!world_.is_aborted())
      watch_permits(now);
    else if (now > std::max(world_.return_deadline(), last_return_ + world_.time_to_return()))
      break;
  }
  return missing(num_ranks);
}

// Ranks that wait for a permit cannot say that their wait is too long.
void Returns::watch_permits(Deadline now) {
  Permits& permits = world_.permits();
  if (const std::int64_t seen = permits.num_handovers(); seen != num_handovers_ || !permits.has_waiters()) {
    num_handovers_ = seen;
    handed_over_ = now;
  } else if (now > handed_over_ + (world_.deadline() - now) + world_.time_to_return()) {
    world_.abort_after_timeout(fmt::format("{} kept the cores for {} s (comm.timeout_seconds) while others waited",
                                           listed(permits.holders()), world_.timeout_seconds()));
  }
}

std::vector<int> Returns::missing(int num_ranks) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    if (!has_returned_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

void end_without(const std::vector<int>& missing, const Error& cause) {
  std::string sentence = fmt::format("{}; {} not returned since, so this process ends", cause.what(),
                                     listed(missing) + (missing.size() == 1 ? " has" : " have"));
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  std::signal(SIGALRM, SIG_DFL);
  alarm(seconds_to_print);
  tell("echelon: {}\n", printable(sentence));
  std::fflush(stderr);
  if (ftrylockfile(stdout) == 0) std::fflush(stdout);  // unless a missing rank waits for its reader
  _exit(static_cast<int>(cause.status()));
}

}  // namespace echelon
