#include "measure/host_turn.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

namespace echelon {

HostTurn::HostTurn(const std::function<void()>& waits) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error) / "echelon-bench.lock";
  constexpr mode_t readable = 0644;  // which suffices for the lock
  file_ = open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, readable);
  if (file_ < 0 || flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  waits();
  while (flock(file_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

HostTurn::~HostTurn() {
  if (file_ >= 0) close(file_);
}

}  // namespace echelon
