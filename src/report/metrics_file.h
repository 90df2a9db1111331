// metrics.jsonl: one JSON object per line, written at once for readers that follow the run.
#pragma once

#include "files/file.h"

#include <filesystem>
#include <optional>
#include <string>

namespace echelon {

class MetricsFile {
 public:
  /// Opens `path` for appending; makes its folder. Throws Failure if that fails.
  explicit MetricsFile(const std::filesystem::path& path);

  /// Writes one object; returns what to warn of, each cause once. A line that the disk did not take whole is ended
  /// before the next object, so that no later line is lost with it. A file that was removed or renamed is made again.
  [[nodiscard]] std::string append(const std::string& json);

 private:
  void open();
  /// Also forgets bytes that it no longer has.
  bool was_removed();
  /// False if not all of it was written; `opens`: a new file.
  bool write_object(const std::string& json, bool opens);
  bool write(const std::string& text);

  std::filesystem::path path_;
  std::optional<File> file_;
  std::int64_t num_bytes_ = 0;
  bool is_torn_ = false, has_failed_ = false, has_told_removal_ = false;
};

}  // namespace echelon
