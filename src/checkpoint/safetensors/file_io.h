// Plain files by their descriptor: every error is a sentence with the path and the system's reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace echelon {

/// A regular file, read or written at explicit offsets, so that many ranks can use one file at once.
class File {
 public:
  /// Throws Error if it is missing, no regular file or may not be read.
  [[nodiscard]] static File open_to_read(const std::filesystem::path& path);
  /// Throws Failure if it is missing.
  [[nodiscard]] static File open_to_write(const std::filesystem::path& path);
  /// Truncates a file that is there. Throws Failure.
  [[nodiscard]] static File create(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  [[nodiscard]] std::int64_t num_bytes() const;
  /// Throws Error if the file ends earlier, Failure if the machine cannot read it.
  void read_at(std::int64_t offset, void* out, std::int64_t num_bytes) const;
  /// Throws Failure (a full disk, an I/O error).
  void write_at(std::int64_t offset, const void* data, std::int64_t num_bytes);
  /// Takes the disk blocks of [0, num_bytes) now, so that a full disk is noticed before anything is written. Throws
  /// Failure.
  void reserve(std::int64_t num_bytes);
  /// Throws Failure.
  void sync();
  /// Some file systems report a full disk only here. Throws Failure.
  void close();

 private:
  File(int descriptor, std::filesystem::path path);
  int descriptor_;
  std::filesystem::path path_;
};

/// Throws Error if it is missing, unreadable or larger than `max_bytes`.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes = 1LL << 30);
/// Creates the file and syncs it. Throws Failure.
void write_text(const std::filesystem::path& path, std::string_view text);
/// Makes what was created, renamed or deleted in the folder last. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// Deletes the folder and all in it if it is there. Throws Failure.
void delete_folder(const std::filesystem::path& folder);

}  // namespace echelon
