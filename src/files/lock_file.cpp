#include "files/lock_file.h"

#include "base/error.h"
#include "base/host_name.h"
#include "base/text/printable.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace echelon {

LockedFile open_and_lock(const std::filesystem::path& path) {
  for (;;) {
    File file = File::open_or_create(path);
    const File::Lock lock = file.lock();
    // The process that had it before may have renamed or removed it.
    if (lock != File::Lock::held || file.has_its_name()) return {std::move(file), lock};
  }
}

LockFile::LockFile(const std::filesystem::path& path)
    : name_(fmt::format("process {} on {}", ::getpid(), host_name())), locked_(open_and_lock(path)) {}

std::string LockFile::holder() const {
  constexpr std::int64_t most_bytes = 512;
  std::string text(static_cast<std::size_t>(std::min(locked_.file.num_bytes(), most_bytes)), '\0');
  locked_.file.read_at(0, text.data(), std::ssize(text));
  return printable(text);
}

void LockFile::sign() {
  try {
    locked_.file.write_at(0, name_.data(), std::ssize(name_));
    locked_.file.resize(std::ssize(name_));
  } catch (const Failure&) {
  }
}

}  // namespace echelon
