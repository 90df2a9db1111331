// One run at a time writes into a folder.
#pragma once

#include "files/file.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace echelon {

/// A kernel lock on FOLDER/run.lock, which names host and process of the run that holds it. The system releases it when
/// the process ends, however that happens. A start of the program is an attempt with a number, which files of its
/// checkpoints have in their names; FOLDER/attempt-N takes it.
class RunClaim {
 public:
  /// Makes the folder. The attempt is above `last_attempt` and all that took one in the folder. Throws Error naming the
  /// run that has the folder, Failure if the folder cannot be written.
  RunClaim(const std::filesystem::path& folder, std::int64_t last_attempt);
  /// False on a file system without locks: nothing keeps a second run away.
  [[nodiscard]] bool is_locked() const { return is_locked_; }
  [[nodiscard]] std::int64_t attempt() const { return attempt_; }
  /// Throws Failure if the folder is no longer there, or was replaced, or a later attempt has taken it.
  void require_held() const;

 private:
  void take_attempt(const std::filesystem::path& folder, std::int64_t last_attempt, const std::string& holder);

  File lock_file_;
  std::optional<File> attempt_file_;  // open, so that no other file gets its identity
  bool is_locked_ = true;
  std::int64_t attempt_ = 0;
};

}  // namespace echelon
