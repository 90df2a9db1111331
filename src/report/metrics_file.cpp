#include "report/metrics_file.h"

#include "base/error.h"

#include <filesystem>
#include <utility>

namespace echelon {

MetricsFile::MetricsFile(std::string path) : path_(std::move(path)) {
  std::error_code error;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw Failure(fmt::format("the folder '{}' cannot be made: {}", folder.string(), error.message()));
  file_.open(path_, std::ios::app);
  if (!file_) throw Failure(fmt::format("'{}' cannot be opened for writing; check the folder's permissions", path_));
}

void MetricsFile::append(const std::string& json) {
  file_ << json << '\n' << std::flush;
  if (!file_) throw Failure(fmt::format("'{}' could not be written; is the disk full?", path_));
}

}  // namespace echelon
