#include "comm/thread/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <ctime>

namespace echelon {
namespace {

long futex(FutexWord& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG, value, timeout,
                 nullptr, 0);
}

}  // namespace

bool futex_wait(FutexWord& word, std::uint32_t expected, Deadline deadline) {
  using std::chrono::nanoseconds;
  const auto left = std::chrono::duration_cast<nanoseconds>(deadline - std::chrono::steady_clock::now()).count();
  if (left <= 0) return false;
  const timespec timeout = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  return futex(word, FUTEX_WAIT, expected, &timeout) == 0 || errno != ETIMEDOUT;
}

void futex_wait(FutexWord& word, std::uint32_t expected) { futex(word, FUTEX_WAIT, expected, nullptr); }

void futex_wake(FutexWord& word, int count) { futex(word, FUTEX_WAKE, static_cast<std::uint32_t>(count), nullptr); }

}  // namespace echelon
