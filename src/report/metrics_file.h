// metrics.jsonl: one JSON object per line, written at once for readers that follow the run.
#pragma once

#include "files/file.h"

#include <filesystem>
#include <string>

namespace echelon {

class MetricsFile {
 public:
  /// Opens `path` for appending; makes its folder. Throws Failure if that fails.
  explicit MetricsFile(const std::filesystem::path& path);

  /// Writes one object. A line that the disk did not take whole is ended before the next object, so that no later line
  /// is lost with it. False the first time that an object is lost.
  [[nodiscard]] bool append(const std::string& json);

 private:
  /// False if not all of it was written.
  bool write(const std::string& text);

  File file_;
  std::int64_t num_bytes_ = 0;
  bool is_torn_ = false, has_failed_ = false;
};

}  // namespace echelon
