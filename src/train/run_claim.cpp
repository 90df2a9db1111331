#include "train/run_claim.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/text_file.h"
#include "files/file.h"
#include "files/system_calls.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

namespace echelon {
namespace {

constexpr std::string_view attempt_prefix = "attempt-";

std::optional<std::int64_t> attempt_of(const std::filesystem::path& folder, const std::string& name) {
  if (!name.starts_with(attempt_prefix) || kind_of(folder / name) != NameKind::file) return {};
  std::int64_t attempt = 0;
  const char* end = name.data() + name.size();
  const auto [next, fault] = std::from_chars(name.data() + attempt_prefix.size(), end, attempt);
  const bool is_name = fault == std::errc() && name == fmt::format("{}{}", attempt_prefix, attempt);
  return is_name ? std::optional(attempt) : std::nullopt;
}

constexpr std::string_view lock_name = "run.lock";

File open_lock_file(const std::filesystem::path& folder) {
  make_folder(folder);
  return File::open_or_create(folder / lock_name);
}

}  // namespace

RunClaim::RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt)
    : lock_file_(open_lock_file(folder)) {
  const File::Lock lock = lock_file_.lock();
  require(lock != File::Lock::taken_by_another,
          "output.dir = '{}' has a run that is not over: {} (use another output.dir)", folder.string(),
          printable(read_text_file((folder / lock_name).string()).value_or("an unknown one")));
  is_locked_ = lock == File::Lock::held;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host.data());
  try {
    lock_file_.resize(0);
    lock_file_.write_at(0, holder.data(), std::ssize(holder));
  } catch (const Failure&) {
    // On a full disk the claim holds, without a name.
  }
  take_attempt(folder, last_attempt, holder);
}

void RunClaim::take_attempt(const std::filesystem::path& folder, std::int64_t last_attempt, const std::string& holder) {
  std::vector<std::filesystem::path> earlier;
  for (const std::string& name : list_folder(folder))
    if (const auto attempt = attempt_of(folder, name)) {
      last_attempt = std::max(last_attempt, *attempt);
      earlier.push_back(folder / name);
    }
  // Without locks another run may take the same number at the same time; then this one takes the next.
  for (attempt_ = last_attempt + 1;; ++attempt_) {
    const std::filesystem::path path = folder / fmt::format("{}{}", attempt_prefix, attempt_);
    if (kind_of(path) != NameKind::nothing) continue;
    attempt_file_.emplace(File::create_new(path));
    attempt_file_->write_at(0, holder.data(), std::ssize(holder));
    break;
  }
  if (is_locked_)
    for (const std::filesystem::path& path : earlier) system_calls().unlink(path.c_str());
}

void RunClaim::require_held() const {
  if (!attempt_file_->has_its_name())
    throw Failure(fmt::format("{} is gone: output.dir was moved, deleted or replaced while this run wrote to it",
                              attempt_file_->path().string()));
}

}  // namespace echelon
