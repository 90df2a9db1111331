// The system calls by which a run reads and writes below its folders. They return what the system returns, with errno
// set. Tests put calls that fail, or that record, in their place.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace echelon {

/// The system's own; a subclass overrides some.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  virtual int close(int file);
  virtual ssize_t pread(int file, void* out, std::size_t count, off_t offset);
  virtual ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset);
  virtual int fsync(int file);
  /// Starts to write these bytes to the disk; with `waits` returns when the disk has them, and forgets its copy.
  virtual int write_back(int file, off_t offset, off_t size, bool waits);
  virtual int fstat(int file, struct stat* status);
  virtual int ftruncate(int file, off_t size);
  virtual int fallocate(int file, off_t size);
  /// An exclusive lock of the whole file, without waiting.
  virtual int lock(int file);

  virtual int lstat(const char* path, struct stat* status);
  virtual int stat(const char* path, struct stat* status);
  /// The path without links, in `real`.
  virtual int real_path(const char* path, std::string* real);
  virtual int statvfs(const char* path, struct statvfs* status);
  /// By the rights with which the process acts.
  virtual int access(const char* path, int mode);
  virtual int mkdir(const char* path, mode_t mode);
  virtual int rmdir(const char* path);
  virtual int unlink(const char* path);
  virtual int link(const char* from, const char* to);
  /// `flags` of renameat2(); 0: replaces a file.
  virtual int rename(const char* from, const char* to, unsigned flags);
  /// Appends the names in a folder, but for "." and "..".
  virtual int list(const char* folder, std::vector<std::string>* names);
};

/// What this process uses.
[[nodiscard]] SystemCalls& system_calls();

/// For as long as it lives, this process uses others. One at a time, and no other thread makes a call at its two ends.
class SubstitutedCalls {
 public:
  explicit SubstitutedCalls(SystemCalls& calls);
  ~SubstitutedCalls();
  SubstitutedCalls(const SubstitutedCalls&) = delete;
  SubstitutedCalls& operator=(const SubstitutedCalls&) = delete;

 private:
  SystemCalls* before_;
};

}  // namespace echelon
