#include "files/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace echelon {
namespace {

SystemCalls real_calls;
std::atomic<SystemCalls*> calls_in_use = &real_calls;

}  // namespace

SystemCalls& system_calls() { return *calls_in_use; }

SubstitutedCalls::SubstitutedCalls(SystemCalls& calls) : before_(calls_in_use.exchange(&calls)) {}
SubstitutedCalls::~SubstitutedCalls() { calls_in_use = before_; }

int SystemCalls::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int SystemCalls::close(int file) { return ::close(file); }
ssize_t SystemCalls::pread(int file, void* out, std::size_t count, off_t offset) {
  return ::pread(file, out, count, offset);
}
ssize_t SystemCalls::pwrite(int file, const void* data, std::size_t count, off_t offset) {
  return ::pwrite(file, data, count, offset);
}
int SystemCalls::fsync(int file) { return ::fsync(file); }
int SystemCalls::write_back(int file, off_t offset, off_t size, bool waits) {
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(file, offset, size, waits ? all : SYNC_FILE_RANGE_WRITE) != 0) return -1;
  if (waits) (void)::posix_fadvise(file, offset, size, POSIX_FADV_DONTNEED);  // advice
  return 0;
}
int SystemCalls::fstat(int file, struct stat* status) { return ::fstat(file, status); }
int SystemCalls::ftruncate(int file, off_t size) { return ::ftruncate(file, size); }
int SystemCalls::fallocate(int file, off_t size) {
  errno = ::posix_fallocate(file, 0, size);
  return errno == 0 ? 0 : -1;
}
int SystemCalls::lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB); }

int SystemCalls::lstat(const char* path, struct stat* status) { return ::lstat(path, status); }
int SystemCalls::stat(const char* path, struct stat* status) { return ::stat(path, status); }
int SystemCalls::real_path(const char* path, std::string* real) {
  char* found = ::realpath(path, nullptr);
  if (found == nullptr) return -1;
  *real = found;
  std::free(found);
  return 0;
}
int SystemCalls::statvfs(const char* path, struct statvfs* status) { return ::statvfs(path, status); }
int SystemCalls::access(const char* path, int mode) { return ::faccessat(AT_FDCWD, path, mode, AT_EACCESS); }
int SystemCalls::mkdir(const char* path, mode_t mode) { return ::mkdir(path, mode); }
int SystemCalls::rmdir(const char* path) { return ::rmdir(path); }
int SystemCalls::unlink(const char* path) { return ::unlink(path); }
int SystemCalls::link(const char* from, const char* to) { return ::link(from, to); }
int SystemCalls::rename(const char* from, const char* to, unsigned flags) {
  return flags == 0 ? ::rename(from, to) : ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

int SystemCalls::list(const char* folder, std::vector<std::string>* names) {
  DIR* const entries = ::opendir(folder);
  if (entries == nullptr) return -1;
  errno = 0;
  while (const dirent* entry = ::readdir(entries))  // NOLINT(concurrency-mt-unsafe): of a stream of its own
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names->emplace_back(name);
  const int error_number = errno;
  ::closedir(entries);
  errno = error_number;
  return error_number == 0 ? 0 : -1;
}

}  // namespace echelon
