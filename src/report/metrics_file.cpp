#include "report/metrics_file.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

File opened(const std::filesystem::path& path) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  return File::open_or_create(path);
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) { open(); }

void MetricsFile::open() {
  file_.emplace(opened(path_));
  num_bytes_ = file_->num_bytes();
  char last = '\n';
  if (num_bytes_ > 0) file_->read_at(num_bytes_ - 1, &last, 1);
  is_torn_ = last != '\n';  // an earlier run was killed
}

bool MetricsFile::was_removed() {
  try {
    num_bytes_ = std::min(num_bytes_, file_->num_bytes());  // someone may have emptied it
    return !file_->has_its_name();
  } catch (const Failure&) {
    return false;  // what is wrong is told where it cannot be written
  }
}

bool MetricsFile::write_object(const std::string& json, bool opens) {
  try {
    if (opens) open();
  } catch (const Error&) {
    return false;
  }
  return write((is_torn_ ? "\n" : "") + json + "\n");
}

std::string MetricsFile::append(const std::string& json) {
  const bool is_new = was_removed();
  if (!write_object(json, is_new))
    return std::exchange(has_failed_, true)
               ? ""
               : fmt::format("'{}' could not be written, and lines of it are missing; is the disk full?",
                             path_.string());
  if (!is_new || std::exchange(has_told_removal_, true)) return "";
  return fmt::format("'{}' was removed or renamed; the lines from here on are in a new file of that name",
                     path_.string());
}

bool MetricsFile::write(const std::string& text) {
  const std::int64_t before = num_bytes_;
  try {
    file_->write_at(num_bytes_, text.data(), std::ssize(text));
    num_bytes_ += std::ssize(text);
    is_torn_ = false;
    return true;
  } catch (const Failure&) {
    // What there is of the line stays.
  }
  try {
    num_bytes_ = file_->num_bytes();
  } catch (const Failure&) {
    num_bytes_ = before;
  }
  is_torn_ = is_torn_ || num_bytes_ > before;
  return false;
}

}  // namespace echelon
