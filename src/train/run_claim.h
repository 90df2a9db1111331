// One run at a time writes into a folder.
#pragma once

#include <filesystem>

namespace echelon {

/// A kernel lock on FOLDER/run.lock, which names host and process of the run that holds it. The system releases it when
/// the process ends, however that happens.
class RunClaim {
 public:
  /// Makes the folder. Throws Error naming the run that has the folder, Failure if the folder cannot be written.
  explicit RunClaim(const std::filesystem::path& folder);
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

  /// False on a file system without locks: nothing keeps a second run away.
  [[nodiscard]] bool is_locked() const { return is_locked_; }

 private:
  int file_ = -1;
  bool is_locked_ = true;
};

}  // namespace echelon
