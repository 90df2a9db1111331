#include "train/save/state_write.h"

namespace echelon {
namespace {
constexpr const char* given_up = "the checkpoint was given up";
}

void StateWrite::perform() {
  if (is_done()) return;  // cancelled
  std::optional<Error> error;
  try {
    run_(*this);
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::exception& caught) {
    error = Failure(caught.what());
  }
  const std::lock_guard lock(mutex_);
  if (is_done_) return;  // cancelled
  is_done_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

void StateWrite::read_memory(const std::function<void()>& read) {
  {
    const std::lock_guard lock(mutex_);
    if (is_done_) throw Failure(given_up);
    is_reading_ = true;
  }
  const auto end = [this] {
    const std::lock_guard lock(mutex_);
    is_reading_ = false;
    changed_.notify_all();
  };
  try {
    read();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void StateWrite::require_wanted() {
  const std::lock_guard lock(mutex_);
  if (is_done_) throw Failure(given_up);
}

void StateWrite::finished_units(std::size_t num_units) {
  const std::lock_guard lock(mutex_);
  num_units_ = num_units;
  changed_.notify_all();
}

bool StateWrite::wait_until(Clock::time_point end) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, end, [this] { return is_done_; });
}

bool StateWrite::is_done() {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

bool StateWrite::wait_for_units(std::size_t num_units, Clock::time_point end) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, end, [&] { return is_done_ || num_units_ >= num_units; });
}

void StateWrite::cancel(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (is_done_) return;
  is_done_ = is_cancelled_ = true;
  error_ = Failure(why);
  changed_.wait(lock, [this] { return !is_reading_; });
}

bool StateWrite::is_cancelled() {
  const std::lock_guard lock(mutex_);
  return is_cancelled_;
}

void StateWrite::require_success() {
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
}

}  // namespace echelon
