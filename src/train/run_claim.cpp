#include "train/run_claim.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/text_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace echelon {

RunClaim::RunClaim(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "run.lock";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Failure(fmt::format("the folder '{}' cannot be made: {}", folder.string(), error.message()));
  constexpr mode_t permissions = 0666;  // less the umask
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, permissions);
  if (file_ < 0) throw Failure(fmt::format("'{}' cannot be written: {}", path.string(), std::strerror(errno)));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    const bool is_taken = errno == EWOULDBLOCK;
    if (is_taken) ::close(file_);
    require(!is_taken, "output.dir = '{}' has a run that is not over: {} (use another output.dir)", folder.string(),
            printable(read_text_file(path.string()).value_or("an unknown one")));
    is_locked_ = false;
  }
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host.data());
  const bool is_said = ::ftruncate(file_, 0) == 0 &&
                       ::pwrite(file_, holder.data(), holder.size(), 0) == static_cast<ssize_t>(holder.size());
  (void)is_said;  // on a full disk the claim holds, without a name
}

RunClaim::~RunClaim() { ::close(file_); }

}  // namespace echelon
