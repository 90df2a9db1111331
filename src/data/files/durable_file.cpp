#include "data/files/durable_file.h"

#include "base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace echelon {
namespace {
constexpr std::size_t buffer_bytes = 1 << 20;
}

DurableFile::DurableFile(std::string path) : path_(std::move(path)), partial_path_(path_ + ".partial") {
  file_ = open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("created");
  buffer_.reserve(buffer_bytes);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::move(other.partial_path_)),
      buffer_(std::move(other.buffer_)),
      file_(std::exchange(other.file_, -1)) {}

DurableFile::~DurableFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(partial_path_.c_str());
}

void DurableFile::append(const void* data, std::size_t num_bytes) {
  buffer_.append(static_cast<const char*>(data), num_bytes);
  if (buffer_.size() >= buffer_bytes) write_buffer();
}

void DurableFile::write_buffer() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t written = write(file_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("written");
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void DurableFile::flush() {
  write_buffer();
  if (fsync(file_) != 0) fail("written");
}

void DurableFile::publish() {
  flush();
  if (rename(partial_path_.c_str(), path_.c_str()) != 0) fail("renamed");
  close(std::exchange(file_, -1));
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);  // some file systems refuse to sync a folder; the file itself is safe by now
  close(directory);
}

void DurableFile::fail(std::string_view what) const {
  throw Failure(fmt::format("{} cannot be {}: {}", partial_path_, what, std::strerror(errno)));
}

void write_durably(const std::string& path, std::string_view text) {
  DurableFile file(path);
  file.append(text.data(), text.size());
  file.publish();
}

}  // namespace echelon
