// Plain files by descriptor. Every error is a sentence with the path and the system's reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// A regular file, read or written at explicit offsets, so that many ranks can use one file at once.
class File {
 public:
  /// Throws Error if it is missing, unreadable or not a regular file.
  [[nodiscard]] static File open_to_read(const std::filesystem::path& path);
  /// The file of this name in a folder that may come from anyone. Throws the errors of open_to_read, and of
  /// path_in_folder.
  [[nodiscard]] static File open_in_folder(const std::filesystem::path& folder, std::string_view name);
  /// Throws Failure if it is missing.
  [[nodiscard]] static File open_to_write(const std::filesystem::path& path);
  /// Truncates an existing file. Throws Failure, and Error if the name is a link.
  [[nodiscard]] static File create(const std::filesystem::path& path);

  /// Throws Failure if the name exists, whatever it is.
  [[nodiscard]] static File create_new(const std::filesystem::path& path);
  /// To read and write; creates the file if it is missing. Throws Failure, and Error if the name is a link.
  [[nodiscard]] static File open_or_create(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t num_bytes() const;
  /// When it was written last, in the time of its file system. Throws Failure.
  [[nodiscard]] std::chrono::seconds modified() const;
  /// Throws Error if the file ends earlier, Failure if the machine cannot read it.
  void read_at(std::int64_t offset, void* out, std::int64_t num_bytes) const;
  /// Throws Failure (a full disk, an I/O error).
  void write_at(std::int64_t offset, const void* data, std::int64_t num_bytes);
  /// Allocates the disk blocks of [0, num_bytes), so that a full disk is detected before anything is written. Throws
  /// Failure.
  void reserve(std::int64_t num_bytes);
  /// Starts to move written bytes to the disk; they are not durable before sync(). Throws Failure.
  void start_writeback(std::int64_t offset, std::int64_t num_bytes);
  /// The same, and waits for it. Then the system's copy of them takes no memory any longer.
  void finish_writeback(std::int64_t offset, std::int64_t num_bytes);
  /// Throws Failure.
  void sync();
  /// Some file systems report a full disk only here. Throws Failure.
  void close();
  /// Whether its path still names this file, and not another one or nothing. Throws Failure.
  [[nodiscard]] bool has_its_name() const;
  /// Throws Failure.
  void resize(std::int64_t num_bytes);

  enum class Lock : std::uint8_t { held, taken_by_another, not_supported };
  /// An exclusive lock of the whole file for as long as it is open, without waiting.
  [[nodiscard]] Lock lock();

 private:
  File(int descriptor, std::filesystem::path path);
  [[nodiscard]] static File opened_to_read(const std::filesystem::path& path, int more_flags);
  void write_back(std::int64_t offset, std::int64_t num_bytes, bool waits);
  int descriptor_;
  std::filesystem::path path_;
};

/// Throws Error if it is missing, unreadable or larger than `max_bytes`.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes = 1LL << 30);
/// The same of a file in a folder that may come from anyone. Throws the errors of path_in_folder too.
[[nodiscard]] std::string read_text_in_folder(const std::filesystem::path& folder, std::string_view name,
                                              std::int64_t max_bytes = 1LL << 30);
/// Creates the file and syncs it. Throws Failure.
void write_text(const std::filesystem::path& path, std::string_view text);
/// Makes creations, renames and deletions in the folder durable. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// Makes the folder, whose parent exists, and makes it durable. Throws Failure.
void make_folder_in_parent(const std::filesystem::path& folder);
/// Makes the folder and the parents that it lacks, and makes them durable. Throws Failure.
void make_folder(const std::filesystem::path& folder);
/// Throws Failure if this user may not make files in the folder.
void require_writable(const std::filesystem::path& folder);
/// Deletes the file if it exists. Throws Failure.
void remove_file(const std::filesystem::path& path);
/// The file at `from` gets the name `to`, which must not exist, and loses its old one. Throws Failure.
void give_name(const std::filesystem::path& from, const std::filesystem::path& to);
/// Bytes that an ordinary user may still write there; none if the file system does not say.
[[nodiscard]] std::optional<std::int64_t> free_bytes(const std::filesystem::path& folder);
/// Deletes the folder with its contents if it exists. Throws Failure.
void delete_folder(const std::filesystem::path& folder);
/// Deletes the folder if it exists. Throws Failure, also if it is not empty.
void remove_empty_folder(const std::filesystem::path& folder);
/// The names in a folder, sorted; none if it does not exist. Throws Failure.
[[nodiscard]] std::vector<std::string> list_folder(const std::filesystem::path& folder);
/// Renames a file or folder; a file or an empty folder at `to` is replaced. Throws Failure.
void replace_name(const std::filesystem::path& from, const std::filesystem::path& to);
/// Both names change places at once. False if the file system cannot.
[[nodiscard]] bool exchange_names(const std::filesystem::path& one, const std::filesystem::path& other);

enum class NameKind : std::uint8_t { nothing, file, folder, other };
/// What has the name; a link is `other`. Throws Failure.
[[nodiscard]] NameKind kind_of(const std::filesystem::path& path);
/// The same of what a link leads to; of a link that leads nowhere, `nothing`, and of one in a circle, `other`.
[[nodiscard]] NameKind kind_of_target(const std::filesystem::path& path);
[[nodiscard]] inline bool is_folder(const std::filesystem::path& path) {
  return kind_of_target(path) == NameKind::folder;
}
/// The whole path without links, `.` and `..`, and without a slash at its end; what does not exist is kept as written.
[[nodiscard]] std::filesystem::path resolved(const std::filesystem::path& path);
/// Whether there is something, which a link may lead to. Throws Failure.
[[nodiscard]] inline bool has_target(const std::filesystem::path& path) {
  return kind_of_target(path) != NameKind::nothing;
}

}  // namespace echelon
