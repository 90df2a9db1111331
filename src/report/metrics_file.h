// metrics.jsonl: one JSON object per line, flushed at once for readers that follow the run.
#pragma once

#include <fstream>
#include <string>

namespace echelon {

class MetricsFile {
 public:
  /// Opens `path` for appending; makes its folder. Throws Failure if that fails.
  explicit MetricsFile(std::string path);

  /// Writes one object and flushes it. Throws Failure if the disk takes no more.
  void append(const std::string& json);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace echelon
