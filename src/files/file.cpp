#include "files/file.h"

#include "base/error.h"
#include "files/folder_links.h"
#include "files/system_calls.h"

#include <fcntl.h>
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

/// Where links are not followed.
[[noreturn]] void fail_to_create(const std::filesystem::path& path, int error_number) {
  require(error_number != ELOOP, "{} is a link, through which nothing is written; remove it", path.string());
  fail(path, error_number);
}

template <class Call>
auto retried(Call&& call) {  // a signal may interrupt any call
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

/// Of stat() or lstat().
NameKind kind_of_result(int result, const struct stat& status, const std::filesystem::path& path) {
  if (result != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NameKind::nothing;
    if (errno == ELOOP) return NameKind::other;
    fail(path, errno);
  }
  if (S_ISREG(status.st_mode)) return NameKind::file;
  return S_ISDIR(status.st_mode) ? NameKind::folder : NameKind::other;
}

std::string text_of(const File& file, std::int64_t max_bytes) {
  const std::int64_t num_bytes = file.num_bytes();
  require(num_bytes <= max_bytes, "{} has {} bytes, more than the {} that such a file may have", file.path().string(),
          num_bytes, max_bytes);
  std::string text(static_cast<std::size_t>(num_bytes), '\0');
  file.read_at(0, text.data(), num_bytes);
  return text;
}

constexpr mode_t permissions = 0666, folder_permissions = 0777;  // less the umask
constexpr std::int64_t max_call_bytes = 1LL << 30;               // Linux moves at most 2 GiB in one call

}  // namespace

File::File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}

bool File::has_its_name() const {
  struct stat own {
  }, named{};
  if (system_calls().fstat(descriptor_, &own) != 0) fail(path_, errno);
  if (system_calls().lstat(path_.c_str(), &named) == 0) return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
  if (errno != ENOENT && errno != ENOTDIR) fail(path_, errno);
  return false;
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File::~File() {
  if (descriptor_ >= 0) system_calls().close(descriptor_);
}

File File::open_to_read(const std::filesystem::path& path) { return opened_to_read(path, 0); }

File File::open_in_folder(const std::filesystem::path& folder, std::string_view name) {
  return opened_to_read(path_in_folder(folder, name), O_NOFOLLOW);
}

File File::opened_to_read(const std::filesystem::path& path, int more_flags) {
  // A pipe must not block.
  const int descriptor =
      retried([&] { return system_calls().open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags, 0); });
  require(descriptor >= 0, "{}: {}", path.string(), reason(errno));
  File file(descriptor, path);
  struct stat status {};
  if (system_calls().fstat(descriptor, &status) != 0) fail(path, errno);
  require(S_ISREG(status.st_mode), "{} is not a regular file", path.string());
  return file;
}

File File::open_to_write(const std::filesystem::path& path) {
  const int descriptor = retried([&] { return system_calls().open(path.c_str(), O_WRONLY | O_CLOEXEC, 0); });
  if (descriptor < 0) fail(path, errno);
  return {descriptor, path};
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = retried([&] {
    return system_calls().open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, permissions);
  });
  if (descriptor < 0) fail_to_create(path, errno);
  return {descriptor, path};
}

File File::create_new(const std::filesystem::path& path) {
  const int descriptor =
      retried([&] { return system_calls().open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, permissions); });
  if (descriptor < 0) fail(path, errno);
  return {descriptor, path};
}

File File::open_or_create(const std::filesystem::path& path) {
  const int descriptor = retried(
      [&] { return system_calls().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, permissions); });
  if (descriptor < 0) fail_to_create(path, errno);
  return {descriptor, path};
}

std::int64_t File::num_bytes() const {
  struct stat status {};
  if (system_calls().fstat(descriptor_, &status) != 0) fail(path_, errno);
  return status.st_size;
}

std::chrono::seconds File::modified() const {
  struct stat status {};
  if (system_calls().fstat(descriptor_, &status) != 0) fail(path_, errno);
  return std::chrono::seconds(status.st_mtim.tv_sec);
}

void File::read_at(std::int64_t offset, void* out, std::int64_t num_bytes) const {
  for (auto* next = static_cast<char*>(out); num_bytes > 0;) {
    const auto count = retried([&] {
      return system_calls().pread(descriptor_, next, static_cast<std::size_t>(std::min(num_bytes, max_call_bytes)),
                                  offset);
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
      return system_calls().pwrite(descriptor_, next, static_cast<std::size_t>(std::min(num_bytes, max_call_bytes)),
                                   offset);
    });
    if (count <= 0) fail(path_, count < 0 ? errno : ENOSPC);
    next += count;
    offset += count;
    num_bytes -= count;
  }
}

void File::reserve(std::int64_t num_bytes) {
  if (num_bytes > 0 && retried([&] { return system_calls().fallocate(descriptor_, num_bytes); }) != 0)
    fail(path_, errno);
}

void File::start_writeback(std::int64_t offset, std::int64_t num_bytes) { write_back(offset, num_bytes, false); }
void File::finish_writeback(std::int64_t offset, std::int64_t num_bytes) { write_back(offset, num_bytes, true); }

// An error that is reported here is not reported again by sync().
void File::write_back(std::int64_t offset, std::int64_t num_bytes, bool waits) {
  if (retried([&] { return system_calls().write_back(descriptor_, offset, num_bytes, waits); }) == 0) return;
  const bool is_supported = errno != ENOSYS && errno != EINVAL && errno != ESPIPE && errno != EOPNOTSUPP;
  if (is_supported) fail(path_, errno);
}

void File::sync() {
  if (retried([&] { return system_calls().fsync(descriptor_); }) != 0) fail(path_, errno);
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  // After EINTR Linux has closed it.
  if (descriptor >= 0 && system_calls().close(descriptor) != 0 && errno != EINTR) fail(path_, errno);
}

void File::resize(std::int64_t num_bytes) {
  if (retried([&] { return system_calls().ftruncate(descriptor_, num_bytes); }) != 0) fail(path_, errno);
}

File::Lock File::lock() {
  if (retried([&] { return system_calls().lock(descriptor_); }) == 0) return Lock::held;
  return errno == EWOULDBLOCK ? Lock::taken_by_another : Lock::not_supported;
}

std::string read_text(const std::filesystem::path& path, std::int64_t max_bytes) {
  return text_of(File::open_to_read(path), max_bytes);
}

std::string read_text_in_folder(const std::filesystem::path& folder, std::string_view name, std::int64_t max_bytes) {
  return text_of(File::open_in_folder(folder, name), max_bytes);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write_at(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.sync();
  file.close();
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor =
      retried([&] { return system_calls().open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
  if (descriptor < 0) fail(folder, errno);
  const int error_number = system_calls().fsync(descriptor) == 0 ? 0 : errno;
  system_calls().close(descriptor);
  // EINVAL: a file system that cannot sync folders.
  if (error_number != 0 && error_number != EINVAL) fail(folder, error_number);
}

void make_folder_in_parent(const std::filesystem::path& folder) {
  const int error = system_calls().mkdir(folder.c_str(), folder_permissions) != 0 ? errno : 0;
  if (error != 0 && !is_folder(folder)) fail(folder, error == EEXIST ? ENOTDIR : error);
  sync_folder(folder.has_parent_path() ? folder.parent_path() : ".");
}

void make_folder(const std::filesystem::path& folder) {
  const std::filesystem::path parent = folder.parent_path();
  if (!parent.empty() && parent != folder && kind_of(parent) == NameKind::nothing) make_folder(parent);
  make_folder_in_parent(folder);
}

void require_writable(const std::filesystem::path& folder) {
  if (system_calls().access(folder.c_str(), W_OK | X_OK) != 0) fail(folder, errno);
}

void remove_file(const std::filesystem::path& path) {
  if (system_calls().unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, errno);
}

void give_name(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (system_calls().link(from.c_str(), to.c_str()) == 0) return remove_file(from);
  const bool has_links = errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK;
  if (has_links) fail(to, errno);
  if (system_calls().rename(from.c_str(), to.c_str(), RENAME_NOREPLACE) != 0) fail(to, errno);
}

std::optional<std::int64_t> free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (system_calls().statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

std::vector<std::string> list_folder(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (system_calls().list(folder.c_str(), &names) != 0 && errno != ENOENT && errno != ENOTDIR) fail(folder, errno);
  std::ranges::sort(names);
  return names;
}

NameKind kind_of(const std::filesystem::path& path) {
  struct stat status {};
  return kind_of_result(system_calls().lstat(path.c_str(), &status), status, path);
}

std::filesystem::path resolved(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  if (error) return path;
  return whole.has_filename() ? whole : whole.parent_path();
}

NameKind kind_of_target(const std::filesystem::path& path) {
  struct stat status {};
  return kind_of_result(system_calls().stat(path.c_str(), &status), status, path);
}

void remove_empty_folder(const std::filesystem::path& folder) {
  if (system_calls().rmdir(folder.c_str()) != 0 && errno != ENOENT) fail(folder, errno);
}

void replace_name(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (system_calls().rename(from.c_str(), to.c_str(), 0) != 0)
    throw Failure(fmt::format("{} cannot be renamed to {}: {}", from.string(), to.string(), reason(errno)));
}

bool exchange_names(const std::filesystem::path& one, const std::filesystem::path& other) {
  return system_calls().rename(one.c_str(), other.c_str(), RENAME_EXCHANGE) == 0;
}

void delete_folder(const std::filesystem::path& folder) {
  // A link is removed alone: what it leads to stays.
  if (kind_of(folder) == NameKind::other) return remove_file(folder);
  for (const std::string& name : list_folder(folder)) {
    const std::filesystem::path path = folder / name;
    kind_of(path) == NameKind::folder ? delete_folder(path) : remove_file(path);
  }
  remove_empty_folder(folder);
}

}  // namespace echelon
