// A file as bytes in memory, read-only (mmap).
#pragma once

#include <string>
#include <string_view>

namespace echelon {

/// Throws Error if `path` cannot be opened or is not a regular file. The file must not shrink while it is mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace echelon
