// metrics.jsonl: one JSON object per line, written at once for readers that follow the run.
#pragma once

#include <string>

namespace echelon {

class MetricsFile {
 public:
  /// Opens `path` for appending; makes its folder. Throws Failure if that fails.
  explicit MetricsFile(std::string path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Writes one object. A line that the disk did not take whole is ended before the next object, so that no later line
  /// is lost with it. False the first time that an object is lost.
  [[nodiscard]] bool append(const std::string& json);

 private:
  /// False if not all of it was written.
  bool write(const std::string& text);

  std::string path_;
  int file_ = -1;
  bool is_torn_ = false, has_failed_ = false;
};

}  // namespace echelon
