#include "report/metrics_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace echelon {

MetricsFile::MetricsFile(std::string path) : path_(std::move(path)) {
  std::error_code error;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw Failure(fmt::format("the folder '{}' cannot be made: {}", folder.string(), error.message()));
  constexpr mode_t permissions = 0666;  // less the umask
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, permissions);
  if (file_ < 0) throw Failure(fmt::format("'{}' cannot be opened for writing; check the folder's permissions", path_));
  char last = '\n';
  const off_t end = ::lseek(file_, 0, SEEK_END);
  is_torn_ = end > 0 && ::pread(file_, &last, 1, end - 1) == 1 && last != '\n';  // an earlier run was killed
}

MetricsFile::~MetricsFile() { ::close(file_); }

bool MetricsFile::append(const std::string& json) {
  if (write((is_torn_ ? "\n" : "") + json + "\n")) return true;
  return std::exchange(has_failed_, true);
}

bool MetricsFile::write(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done > 0) is_torn_ = done < text.size();
  return done == text.size();
}

}  // namespace echelon
