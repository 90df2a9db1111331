// One run at a time writes into a folder.
#pragma once

#include "files/lock_file.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace echelon {

/// A lock on FOLDER/run.lock, which names host and process of the run that holds it. Where the file system has no
/// locks, or keeps them within a host, the file's age takes their place: the holder writes to it every few seconds, and
/// empties it at its end. A start of the program is an attempt with a number, which files of its checkpoints have in
/// their names; FOLDER/attempt-N takes it.
class RunClaim {
 public:
  struct Heartbeat {
    std::chrono::milliseconds interval = std::chrono::seconds(10);
    std::chrono::seconds patience = std::chrono::seconds(60);  // a run without a sign for so long is dead
  };

  /// Makes the folder. The attempt is above `last_attempt` and all that took one in the folder. Throws Error naming the
  /// run that has the folder, Failure if the folder cannot be written.
  RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt)
      : RunClaim(folder, last_attempt, Heartbeat{}) {}
  RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt, const Heartbeat& heartbeat);
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

  /// False on a file system without locks: the heartbeat alone keeps other runs away.
  [[nodiscard]] bool is_locked() const { return lock_file_.lock() == File::Lock::held; }
  [[nodiscard]] std::int64_t attempt() const { return attempt_; }
  /// Throws Failure if the folder is no longer there, or was replaced, or a later attempt has taken it.
  void require_held() const;

 private:
  void take_attempt(std::int64_t last_attempt);
  void require_no_heartbeat(const std::string& holder) const;
  void beat();

  std::filesystem::path folder_;
  Heartbeat heartbeat_;
  LockFile lock_file_;
  std::optional<File> attempt_file_;  // open, so that no other file gets its identity
  std::int64_t attempt_ = 0;

  std::mutex mutex_;  // of is_over_
  std::condition_variable ends_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace echelon
