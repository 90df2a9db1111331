// One preparation at a time writes into a folder.
#pragma once

#include "files/lock_file.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// The folder and a lock on FOLDER/prepare.lock, which its end removes, with what it made of the folder if that is
/// empty. On a file system without locks nothing keeps others away.
class OutputClaim {
 public:
  /// Throws Error naming the process that has the folder, Failure if it cannot be made or written.
  explicit OutputClaim(const std::string& folder);
  ~OutputClaim();
  OutputClaim(const OutputClaim&) = delete;
  OutputClaim& operator=(const OutputClaim&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // inner ones first
  std::filesystem::path path_;
  std::optional<LockFile> lock_;
};

}  // namespace echelon
