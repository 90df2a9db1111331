// Writes a file atomically: a temporary name, fsync, rename.
#pragma once

#include "files/file.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

/// Buffers and appends. Every member throws Failure with the path and the system's reason (a full disk, no such
/// folder).
class DurableFile {
 public:
  /// Opens `path` + ".partial", or another such name if that is being written.
  explicit DurableFile(std::string path);
  /// Removes the temporary file unless publish() has run.
  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  void append(const void* data, std::size_t num_bytes);
  /// Replaces bytes that are written already.
  void overwrite(std::int64_t first, const void* data, std::size_t num_bytes);
  /// Flushes to the disk; the file still has its temporary name.
  void flush();
  /// flush(), then renames the file to its final name and replaces any file there.
  void publish();

 private:
  void write_buffer();

  std::string path_;
  std::string buffer_;
  std::optional<File> file_;  // until it has its name
  std::int64_t written_ = 0;
};

/// Replaces the contents of `path` by `text`, or changes nothing.
void write_durably(const std::string& path, std::string_view text);

}  // namespace echelon
