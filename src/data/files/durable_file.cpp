#include "data/files/durable_file.h"

#include "files/lock_file.h"
#include "files/system_calls.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace echelon {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

/// The first of PATH.partial, PATH.partial-2, ... that no process writes: what a killed one left is written over.
File open_temporary(const std::string& path) {
  for (int i = 1;; ++i) {
    LockedFile locked = open_and_lock(i == 1 ? path + ".partial" : fmt::format("{}.partial-{}", path, i));
    if (locked.lock == File::Lock::taken_by_another) continue;
    locked.file.resize(0);
    return std::move(locked.file);
  }
}

}  // namespace

DurableFile::DurableFile(std::string path) : path_(std::move(path)), file_(open_temporary(path_)) {
  buffer_.reserve(buffer_bytes);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      buffer_(std::move(other.buffer_)),
      file_(std::move(other.file_)),
      written_(other.written_) {
  other.file_.reset();
}

DurableFile::~DurableFile() {
  if (file_) system_calls().unlink(file_->path().c_str());
}

void DurableFile::append(const void* data, std::size_t num_bytes) {
  buffer_.append(static_cast<const char*>(data), num_bytes);
  if (buffer_.size() >= buffer_bytes) write_buffer();
}

void DurableFile::write_buffer() {
  file_->write_at(written_, buffer_.data(), std::ssize(buffer_));
  written_ += std::ssize(buffer_);
  buffer_.clear();
}

void DurableFile::overwrite(std::int64_t first, const void* data, std::size_t num_bytes) {
  write_buffer();
  file_->write_at(first, data, static_cast<std::int64_t>(num_bytes));
}

void DurableFile::flush() {
  write_buffer();
  file_->sync();
}

void DurableFile::publish() {
  flush();
  replace_name(file_->path(), path_);
  File published = std::move(*file_);
  file_.reset();
  published.close();  // not earlier: unlocked, it would be another process's to write over
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

void write_durably(const std::string& path, std::string_view text) {
  DurableFile file(path);
  file.append(text.data(), text.size());
  file.publish();
}

}  // namespace echelon
