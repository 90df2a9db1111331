// Plain files by descriptor. Every error is a sentence with the path and the system's reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

/// A regular file, read or written at explicit offsets, so that many ranks can use one file at once.
class File {
 public:
  /// Throws Error if it is missing, unreadable or not a regular file.
  [[nodiscard]] static File open_to_read(const std::filesystem::path& path);
  /// Throws Failure if it is missing.
  [[nodiscard]] static File open_to_write(const std::filesystem::path& path);
  /// Truncates an existing file. Throws Failure.
  [[nodiscard]] static File create(const std::filesystem::path& path);

  /// Throws Failure if the name exists, whatever it is.
  [[nodiscard]] static File create_new(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  [[nodiscard]] std::int64_t num_bytes() const;
  /// Throws Error if the file ends earlier, Failure if the machine cannot read it.
  void read_at(std::int64_t offset, void* out, std::int64_t num_bytes) const;
  /// Throws Failure (a full disk, an I/O error).
  void write_at(std::int64_t offset, const void* data, std::int64_t num_bytes);
  /// Allocates the disk blocks of [0, num_bytes), so that a full disk is detected before anything is written. Throws
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
/// Makes creations, renames and deletions in the folder durable. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// Makes the folder and the parents that it lacks, and makes them durable. Throws Failure.
void make_folder(const std::filesystem::path& folder);
/// Deletes the file if it exists. Throws Failure.
void remove_file(const std::filesystem::path& path);
/// The file at `from` gets the name `to`, which must not exist, and loses its old one. Throws Failure.
void give_name(const std::filesystem::path& from, const std::filesystem::path& to);
/// Bytes that an ordinary user may still write there; none if the file system does not say.
[[nodiscard]] std::optional<std::int64_t> free_bytes(const std::filesystem::path& folder);
/// Deletes the folder with its contents if it exists. Throws Failure.
void delete_folder(const std::filesystem::path& folder);

}  // namespace echelon
