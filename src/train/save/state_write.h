// One rank's work for a checkpoint, done by another thread than the rank's: its file, or what rank 0 publishes.
#pragma once

#include "base/error.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace echelon {

/// Shared by the rank that waits for the work and the thread that does it.
class StateWrite {
 public:
  using Clock = std::chrono::steady_clock;
  /// Calls `run(*this)`, on the thread that calls perform().
  explicit StateWrite(std::function<void(StateWrite&)> run) : run_(std::move(run)) {}

  // For the thread.
  /// Does the work; keeps its error.
  void perform();
  /// Runs `read`, which reads the memory of the rank; but after cancel() throws Failure instead.
  void read_memory(const std::function<void()>& read);
  /// Throws Failure after cancel().
  void require_wanted();
  /// The first `num_units` units of the rank's model will not be read again.
  void finished_units(std::size_t num_units);

  // For the rank.
  /// Waits until the work is done, at most so long; whether it is.
  [[nodiscard]] bool wait_until(Clock::time_point end);
  [[nodiscard]] bool is_done();
  /// Waits until the first `num_units` units were read, or the work is done; false: not before `end`.
  [[nodiscard]] bool wait_for_units(std::size_t num_units, Clock::time_point end);
  /// The work has failed, if it is not done yet: when this returns, the thread reads the rank's memory no longer.
  void cancel(const std::string& why);
  [[nodiscard]] bool is_cancelled();
  /// After it is done: throws its error.
  void require_success();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void(StateWrite&)> run_;
  bool is_done_ = false, is_cancelled_ = false, is_reading_ = false;
  std::size_t num_units_ = 0;
  std::optional<Error> error_;
};

}  // namespace echelon
