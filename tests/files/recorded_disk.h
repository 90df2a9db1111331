// A disk that remembers what was done to it, and what of that a power cut may leave.
//
// POSIX promises of a file what was written before its last fsync(), and of a folder the names that it had at its last
// fsync(). Of everything after that, any part may be on the disk: blocks of 4 KiB of a file whole, half or as zeros, in
// any order, and any of the names that came or went.
#pragma once

#include "files/system_calls.h"

#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace echelon::testing {

/// Something that was done to the disk, in the order in which it was done.
struct DiskChange {
  enum class Kind : std::uint8_t { write, resize, sync_file, sync_folder, add_name, remove_name, mark };
  Kind kind{};
  std::uint64_t file = 0;           // of contents
  std::int64_t offset = 0;          // of a write; the size of a resize; the number of a mark
  std::string bytes = {};           // of a write
  std::filesystem::path path = {};  // of a name, or the folder that is synced
  bool is_folder = false;           // of a name that is added
};

/// Makes the calls, and records those that change a disk below a folder.
class RecordingCalls final : public SystemCalls {
 public:
  explicit RecordingCalls(std::filesystem::path root) : root_(std::move(root)) {}
  [[nodiscard]] const std::vector<DiskChange>& changes() const { return changes_; }
  void mark(std::int64_t number) { add({.kind = DiskChange::Kind::mark, .offset = number}); }

  int open(const char* path, int flags, mode_t mode) override;
  int close(int file) override;
  ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset) override;
  int fsync(int file) override;
  int ftruncate(int file, off_t size) override;
  int mkdir(const char* path, mode_t mode) override;
  int rmdir(const char* path) override;
  int unlink(const char* path) override;
  int link(const char* from, const char* to) override;
  int rename(const char* from, const char* to, unsigned flags) override;

 private:
  struct Opened {
    std::filesystem::path folder;  // empty: a file
    std::uint64_t file = 0;
  };
  void add(DiskChange change);
  void add_name(const char* path, std::uint64_t file, bool is_folder);
  [[nodiscard]] bool is_below(const std::filesystem::path& path) const;
  [[nodiscard]] std::uint64_t file_of(const struct stat& status, bool is_new);

  std::filesystem::path root_;
  std::mutex mutex_;
  std::map<int, Opened> opened_;
  std::map<ino_t, std::uint64_t> files_;  // an inode's number comes back; a file's here does not
  std::uint64_t next_file_ = 1;
  std::vector<DiskChange> changes_;
};

/// Writes below `to` what a power cut after the first `count` changes below `root` left, one of many possibilities.
void write_after_power_cut(const std::vector<DiskChange>& changes, std::size_t count, const std::filesystem::path& root,
                           const std::filesystem::path& to, std::mt19937& random);

}  // namespace echelon::testing
