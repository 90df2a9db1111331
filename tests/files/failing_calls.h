// System calls of which one fails.
#pragma once

#include "files/system_calls.h"

#include <atomic>
#include <cerrno>

namespace echelon::testing {

enum class Fault : std::uint8_t { no_space, io_error, interrupted, too_many_files, short_transfer };

/// The call with number `failing` (from 0) does nothing, or only a part, and fails; others are the system's.
class FailingCalls final : public SystemCalls {
 public:
  FailingCalls(std::int64_t failing, Fault fault) : failing_(failing), fault_(fault) {}
  [[nodiscard]] std::int64_t num_calls() const { return num_calls_; }

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : SystemCalls::open(path, flags, mode);
  }
  int close(int file) override {
    const bool is_failing = fails();
    const int number = errno, result = SystemCalls::close(file);
    if (is_failing) errno = number;
    return is_failing ? -1 : result;
  }
  ssize_t pread(int file, void* out, std::size_t count, off_t offset) override {
    const bool is_failing = fails();
    if (is_failing && fault_ != Fault::short_transfer) return -1;
    return SystemCalls::pread(file, out, is_failing && count > 1 ? count / 2 : count, offset);
  }
  ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset) override {
    const bool is_failing = fails();
    if (is_failing && fault_ != Fault::short_transfer) return -1;
    return SystemCalls::pwrite(file, data, is_failing && count > 1 ? count / 2 : count, offset);
  }
  int fsync(int file) override { return fails() ? -1 : SystemCalls::fsync(file); }
  int write_back(int file, off_t offset, off_t size, bool waits) override {
    return fails() ? -1 : SystemCalls::write_back(file, offset, size, waits);
  }
  int fstat(int file, struct stat* status) override { return fails() ? -1 : SystemCalls::fstat(file, status); }
  int ftruncate(int file, off_t size) override { return fails() ? -1 : SystemCalls::ftruncate(file, size); }
  int fallocate(int file, off_t size) override { return fails() ? -1 : SystemCalls::fallocate(file, size); }
  int lock(int file) override { return fails() ? -1 : SystemCalls::lock(file); }
  int lstat(const char* path, struct stat* status) override { return fails() ? -1 : SystemCalls::lstat(path, status); }
  int stat(const char* path, struct stat* status) override { return fails() ? -1 : SystemCalls::stat(path, status); }
  int real_path(const char* path, std::string* real) override {
    return fails() ? -1 : SystemCalls::real_path(path, real);
  }
  int statvfs(const char* path, struct statvfs* status) override {
    return fails() ? -1 : SystemCalls::statvfs(path, status);
  }
  int mkdir(const char* path, mode_t mode) override { return fails() ? -1 : SystemCalls::mkdir(path, mode); }
  int rmdir(const char* path) override { return fails() ? -1 : SystemCalls::rmdir(path); }
  int unlink(const char* path) override { return fails() ? -1 : SystemCalls::unlink(path); }
  int link(const char* from, const char* to) override { return fails() ? -1 : SystemCalls::link(from, to); }
  int rename(const char* from, const char* to, unsigned flags) override {
    return fails() ? -1 : SystemCalls::rename(from, to, flags);
  }
  int list(const char* folder, std::vector<std::string>* names) override {
    return fails() ? -1 : SystemCalls::list(folder, names);
  }

 private:
  bool fails() {
    if (num_calls_++ != failing_) return false;
    constexpr int numbers[] = {ENOSPC, EIO, EINTR, EMFILE, EIO};
    errno = numbers[static_cast<std::size_t>(fault_)];
    return true;
  }

  std::int64_t failing_;
  Fault fault_;
  std::atomic<std::int64_t> num_calls_ = 0;
};

}  // namespace echelon::testing
