#include "files/file.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace echelon {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] void fail(const std::filesystem::path& path, int error_number) {
  throw Failure(fmt::format("{}: {}", path.string(), reason(error_number)));
}

template <class Call>
auto retried(Call&& call) {  // a signal may interrupt any call
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

constexpr std::int64_t max_call_bytes = 1LL << 30;  // Linux moves at most 2 GiB in one call

}  // namespace

File::File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File File::open_to_read(const std::filesystem::path& path) {
  // A pipe must not block.
  const int descriptor = retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  require(descriptor >= 0, "{}: {}", path.string(), reason(errno));
  File file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, errno);
  require(S_ISREG(status.st_mode), "{} is not a regular file", path.string());
  return file;
}

File File::open_to_write(const std::filesystem::path& path) {
  const int descriptor = retried([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); });
  if (descriptor < 0) fail(path, errno);
  return {descriptor, path};
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = retried([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (descriptor < 0) fail(path, errno);
  return {descriptor, path};
}

File File::create_new(const std::filesystem::path& path) {
  const int descriptor = retried([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (descriptor < 0) fail(path, errno);
  return {descriptor, path};
}

std::int64_t File::num_bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(path_, errno);
  return status.st_size;
}

void File::read_at(std::int64_t offset, void* out, std::int64_t num_bytes) const {
  for (auto* next = static_cast<char*>(out); num_bytes > 0;) {
    const auto count = retried([&] {
      return ::pread(descriptor_, next, static_cast<std::size_t>(std::min(num_bytes, max_call_bytes)), offset);
    });
    if (count < 0) fail(path_, errno);
    require(count > 0, "{} is truncated at byte {}: {} more bytes are expected", path_.string(), offset, num_bytes);
    next += count;
    offset += count;
    num_bytes -= count;
  }
}

void File::write_at(std::int64_t offset, const void* data, std::int64_t num_bytes) {
  for (const auto* next = static_cast<const char*>(data); num_bytes > 0;) {
    const auto count = retried([&] {
      return ::pwrite(descriptor_, next, static_cast<std::size_t>(std::min(num_bytes, max_call_bytes)), offset);
    });
    if (count <= 0) fail(path_, count < 0 ? errno : ENOSPC);
    next += count;
    offset += count;
    num_bytes -= count;
  }
}

void File::reserve(std::int64_t num_bytes) {
  int error_number = 0;
  if (num_bytes == 0) return;
  do error_number = ::posix_fallocate(descriptor_, 0, num_bytes);
  while (error_number == EINTR);
  if (error_number != 0) fail(path_, error_number);
}

void File::sync() {
  if (retried([&] { return ::fsync(descriptor_); }) != 0) fail(path_, errno);
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  // After EINTR Linux has closed it.
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) fail(path_, errno);
}

std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes) {
  const File file = File::open_to_read(path);
  const std::int64_t num_bytes = file.num_bytes();
  require(num_bytes <= max_bytes, "{} has {} bytes, more than the {} that such a file may have", path.string(),
          num_bytes, max_bytes);
  std::string text(static_cast<std::size_t>(num_bytes), '\0');
  file.read_at(0, text.data(), num_bytes);
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write_at(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.sync();
  file.close();
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = retried([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail(folder, errno);
  const int error_number = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // EINVAL: a file system that cannot sync folders.
  if (error_number != 0 && error_number != EINVAL) fail(folder, error_number);
}

void make_folder(const std::filesystem::path& folder) {
  if (std::filesystem::path parent = folder.parent_path(); ::mkdir(folder.c_str(), 0777) != 0 && errno == ENOENT) {
    if (parent.empty() || parent == folder) fail(folder, ENOENT);
    make_folder(parent);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) fail(folder, errno);
    sync_folder(parent);
    return;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) fail(folder, error ? error.value() : ENOTDIR);
  sync_folder(folder.has_parent_path() ? folder.parent_path() : ".");
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, errno);
}

void give_name(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return remove_file(from);
  const bool has_links = errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK;
  if (has_links) fail(to, errno);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) fail(to, errno);
}

std::optional<std::int64_t> free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

void delete_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) throw Failure(fmt::format("{}: {}", folder.string(), error.message()));
}

}  // namespace echelon
