// Writes a file atomically: a temporary name, fsync, rename.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// Buffers and appends. Every member throws Failure with the path and the system's reason (a full disk, no such
/// folder).
class DurableFile {
 public:
  /// Opens `path` + ".partial".
  explicit DurableFile(std::string path);
  /// Removes the temporary file unless publish() has run.
  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  void append(const void* data, std::size_t num_bytes);
  /// Flushes to the disk; the file still has its temporary name.
  void flush();
  /// flush(), then renames the file to its final name and replaces any file there.
  void publish();

 private:
  void write_buffer();
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  std::string partial_path_;
  std::string buffer_;
  int file_ = -1;
};

/// Replaces the contents of `path` by `text`, or changes nothing.
void write_durably(const std::string& path, std::string_view text);

}  // namespace echelon
