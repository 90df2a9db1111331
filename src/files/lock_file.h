// Files that one process at a time has, by a kernel lock. The system releases it when the process ends, however that
// happens.
#pragma once

#include "files/file.h"

#include <chrono>
#include <filesystem>
#include <string>

namespace echelon {

/// `lock`: whether this process has it now.
struct LockedFile {
  File file;
  File::Lock lock;
};
/// Creates the file if it is missing. Throws Failure, and Error if the name is a link.
[[nodiscard]] LockedFile open_and_lock(const std::filesystem::path& path);

/// One that names its holder.
class LockFile {
 public:
  /// Throws the errors of open_and_lock.
  explicit LockFile(const std::filesystem::path& path);

  [[nodiscard]] File::Lock lock() const { return locked_.lock; }
  /// "process 7 on HOST": this one.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Who signed last; empty: no process, or it has signed off.
  [[nodiscard]] std::string holder() const;
  /// On a full disk the lock is held without a name.
  void sign();
  void sign_off() { locked_.file.resize(0); }
  [[nodiscard]] std::chrono::seconds signed_at() const { return locked_.file.modified(); }
  void sync() { locked_.file.sync(); }

 private:
  std::string name_;
  LockedFile locked_;
};

}  // namespace echelon
