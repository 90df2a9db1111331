#include "train/run_claim.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/text_file.h"
#include "files/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

namespace echelon {
namespace {

constexpr std::string_view attempt_prefix = "attempt-";

std::optional<std::int64_t> attempt_of(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code error;
  if (!name.starts_with(attempt_prefix) || !entry.is_regular_file(error)) return {};
  std::int64_t attempt = 0;
  const char* end = name.data() + name.size();
  const auto [next, fault] = std::from_chars(name.data() + attempt_prefix.size(), end, attempt);
  const bool is_name = fault == std::errc() && name == fmt::format("{}{}", attempt_prefix, attempt);
  return is_name ? std::optional(attempt) : std::nullopt;
}

}  // namespace

RunClaim::RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt) {
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
  take_attempt(folder, last_attempt, holder);
}

void RunClaim::take_attempt(const std::filesystem::path& folder, std::int64_t last_attempt, const std::string& holder) {
  std::error_code error;
  std::vector<std::filesystem::path> earlier;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const auto attempt = attempt_of(entry)) {
      last_attempt = std::max(last_attempt, *attempt);
      earlier.push_back(entry.path());
    }
  // Without locks another run may take the same number at the same time; then this one takes the next.
  for (attempt_ = last_attempt + 1;; ++attempt_) {
    const std::filesystem::path path = folder / fmt::format("{}{}", attempt_prefix, attempt_);
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) continue;
    File file = File::create_new(path);
    file.write_at(0, holder.data(), std::ssize(holder));
    file.close();
    break;
  }
  if (is_locked_)
    for (const std::filesystem::path& path : earlier) std::filesystem::remove(path, error);
}

RunClaim::~RunClaim() { ::close(file_); }

}  // namespace echelon
