#include "report/metrics_file.h"

#include "base/error.h"

#include <utility>

namespace echelon {
namespace {

File opened(const std::filesystem::path& path) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  return File::open_or_create(path);
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(opened(path)), num_bytes_(file_.num_bytes()) {
  char last = '\n';
  if (num_bytes_ > 0) file_.read_at(num_bytes_ - 1, &last, 1);
  is_torn_ = last != '\n';  // an earlier run was killed
}

bool MetricsFile::append(const std::string& json) {
  if (write((is_torn_ ? "\n" : "") + json + "\n")) return true;
  return std::exchange(has_failed_, true);
}

bool MetricsFile::write(const std::string& text) {
  const std::int64_t before = num_bytes_;
  try {
    file_.write_at(num_bytes_, text.data(), std::ssize(text));
    num_bytes_ += std::ssize(text);
    is_torn_ = false;
    return true;
  } catch (const Failure&) {
    // What there is of the line stays.
  }
  try {
    num_bytes_ = file_.num_bytes();
  } catch (const Failure&) {
    num_bytes_ = before;
  }
  is_torn_ = is_torn_ || num_bytes_ > before;
  return false;
}

}  // namespace echelon
