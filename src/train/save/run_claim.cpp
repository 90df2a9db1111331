#include "train/save/run_claim.h"

#include "base/error.h"
#include "base/host_name.h"
#include "checkpoint/state/state_names.h"
#include "files/system_calls.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
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
  return is_name && attempt <= most_attempts ? std::optional(attempt) : std::nullopt;
}

constexpr std::string_view lock_name = "run.lock";

/// Makes the folder.
std::filesystem::path lock_path_in(const std::filesystem::path& folder) {
  make_folder(folder);
  return folder / lock_name;
}

std::vector<std::pair<std::int64_t, std::filesystem::path>> attempts_in(const std::filesystem::path& folder) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> attempts;
  for (const std::string& name : list_folder(folder))
    if (const auto attempt = attempt_of(folder, name)) attempts.emplace_back(*attempt, folder / name);
  return attempts;
}

}  // namespace

RunClaim::RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt, const Heartbeat& heartbeat)
    : folder_(folder), heartbeat_(heartbeat), lock_file_(lock_path_in(folder)) {
  const std::string holder = lock_file_.holder();
  require(lock_file_.lock() != File::Lock::taken_by_another,
          "output.dir = '{}' has a run that is not over: {} (use another output.dir)", folder.string(),
          holder.empty() ? "an unknown one" : holder);
  take_attempt(last_attempt);
  lock_file_.sign();
  beating_ = std::thread([this] { beat(); });
}

RunClaim::~RunClaim() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  beating_.join();
  try {
    if (attempt_file_->has_its_name()) lock_file_.sign_off();
  } catch (const Failure&) {
    // Then the next run on another host waits for the heartbeat to grow old.
  }
}

/// The attempt's file is new, so its time is that of the file system's clock, whatever this host's is.
void RunClaim::take_attempt(std::int64_t last_attempt) {
  const auto earlier = attempts_in(folder_);
  for (const auto& [attempt, path] : earlier) last_attempt = std::max(last_attempt, attempt);
  // Without locks another run may take the same number at the same time; then this one takes the next.
  for (attempt_ = last_attempt + 1;; ++attempt_) {
    const std::filesystem::path path = folder_ / fmt::format("{}{}", attempt_prefix, attempt_);
    if (kind_of(path) != NameKind::nothing) continue;
    attempt_file_.emplace(File::create_new(path));
    break;
  }
  try {
    require_no_heartbeat(lock_file_.holder());
    attempt_file_->write_at(0, lock_file_.name().data(), std::ssize(lock_file_.name()));
  } catch (const Error&) {
    system_calls().unlink(attempt_file_->path().c_str());
    throw;
  }
  for (const auto& [attempt, path] : earlier) system_calls().unlink(path.c_str());
}

void RunClaim::require_no_heartbeat(const std::string& holder) const {
  const bool is_lock_enough = is_locked() && holder.ends_with(" on " + host_name());
  if (holder.empty() || is_lock_enough) return;
  const std::chrono::seconds age = attempt_file_->modified() - lock_file_.signed_at();
  require(age >= heartbeat_.patience,
          "output.dir = '{}' has a run that is not over, or ended without notice {} s ago: {} (use another output.dir, "
          "or wait until {} s have passed)",
          folder_.string(), std::max<std::int64_t>(age.count(), 0), holder, heartbeat_.patience.count());
}

/// A file system that other hosts see gets the file's new time with sync().
void RunClaim::beat() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, heartbeat_.interval, [this] { return is_over_; })) {
    lock.unlock();
    lock_file_.sign();
    try {
      lock_file_.sync();
    } catch (const Failure&) {
    }
    lock.lock();
  }
}

void RunClaim::require_held() const {
  if (!attempt_file_->has_its_name())
    throw Failure(
        fmt::format("{} is gone: output.dir was moved, deleted or replaced while this run wrote to it, or a "
                    "later run has taken it",
                    attempt_file_->path().string()));
}

}  // namespace echelon
