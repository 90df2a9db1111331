#include "files/recorded_disk.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>

namespace echelon::testing {
namespace {

using Kind = DiskChange::Kind;
constexpr std::int64_t block_bytes_of_disk = 4096;

struct Contents {
  std::string durable;
  std::vector<const DiskChange*> later;  // writes and resizes

  void apply(std::string& text, const DiskChange& change) const {
    const auto end = static_cast<std::size_t>(change.offset) + change.bytes.size();
    if (change.kind == Kind::resize) return text.resize(static_cast<std::size_t>(change.offset));
    if (text.size() < end) text.resize(end);
    text.replace(static_cast<std::size_t>(change.offset), change.bytes.size(), change.bytes);
  }
  void sync() {
    for (const DiskChange* change : later) apply(durable, *change);
    later.clear();
  }
  [[nodiscard]] std::string after_power_cut(std::mt19937& random) const {
    std::string text = durable;
    for (const DiskChange* change : later) {
      if (change->kind == Kind::resize) {
        if (random() % 2 == 0) apply(text, *change);
        continue;
      }
      const auto size = static_cast<std::int64_t>(change->bytes.size());
      for (std::int64_t first = 0; first < size;) {
        const std::int64_t rest = block_bytes_of_disk - (change->offset + first) % block_bytes_of_disk;
        const std::int64_t count = std::min(rest, size - first);
        DiskChange block = {.kind = Kind::write, .offset = change->offset + first};
        block.bytes = change->bytes.substr(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
        const auto fate = random() % 8;
        if (fate == 6) block.bytes.resize(block.bytes.size() / 2);               // torn
        if (fate == 7) std::fill(block.bytes.begin(), block.bytes.end(), '\0');  // allocated alone
        if (fate >= 3) apply(text, block);
        first += count;
      }
    }
    return text;
  }
};

struct Name {
  std::uint64_t file = 0;
  bool is_folder = false;
};

struct Folder {
  std::map<std::string, Name> durable;
  std::vector<const DiskChange*> later;

  static void apply(std::map<std::string, Name>& names, const DiskChange& change) {
    const std::string name = change.path.filename();
    if (change.kind == Kind::add_name)
      names[name] = {change.file, change.is_folder};
    else
      names.erase(name);
  }
  void sync() {
    for (const DiskChange* change : later) apply(durable, *change);
    later.clear();
  }
};

using Folders = std::map<std::filesystem::path, Folder>;

void write_folder(const Folders& folders, const std::map<std::uint64_t, std::string>& files,
                  const std::filesystem::path& from, const std::filesystem::path& to, std::mt19937& random) {
  std::filesystem::create_directories(to);
  const auto folder = folders.find(from);
  if (folder == folders.end()) return;
  std::map<std::string, Name> names = folder->second.durable;
  for (const DiskChange* change : folder->second.later)
    if (random() % 2 == 0) Folder::apply(names, *change);
  for (const auto& [name, entry] : names) {
    if (entry.is_folder)
      write_folder(folders, files, from / name, to / name, random);
    else
      std::ofstream(to / name, std::ios::binary) << files.at(entry.file);
  }
}

}  // namespace

bool RecordingCalls::is_below(const std::filesystem::path& path) const {
  return path.string().starts_with(root_.string());
}

std::uint64_t RecordingCalls::file_of(const struct stat& status, bool is_new) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& file = files_[status.st_ino];
  if (is_new || file == 0) file = next_file_++;
  return file;
}

void RecordingCalls::add(DiskChange change) {
  const std::lock_guard lock(mutex_);
  changes_.push_back(std::move(change));
}

void RecordingCalls::add_name(const char* path, std::uint64_t file, bool is_folder) {
  if (is_below(path)) add({.kind = Kind::add_name, .file = file, .path = path, .is_folder = is_folder});
}

int RecordingCalls::open(const char* path, int flags, mode_t mode) {
  struct stat before {};
  const bool is_new = SystemCalls::lstat(path, &before) != 0;
  const int file = SystemCalls::open(path, flags, mode);
  if (file < 0 || !is_below(path)) return file;
  struct stat status {};
  SystemCalls::fstat(file, &status);
  const std::uint64_t number = file_of(status, is_new);
  if (is_new && (flags & O_CREAT) != 0) add_name(path, number, false);
  if (!is_new && (flags & O_TRUNC) != 0) add({.kind = Kind::resize, .file = number});
  const std::lock_guard lock(mutex_);
  opened_[file] = {S_ISDIR(status.st_mode) ? std::filesystem::path(path) : std::filesystem::path(), number};
  return file;
}

int RecordingCalls::close(int file) {
  {
    const std::lock_guard lock(mutex_);
    opened_.erase(file);
  }
  return SystemCalls::close(file);
}

ssize_t RecordingCalls::pwrite(int file, const void* data, std::size_t count, off_t offset) {
  const ssize_t written = SystemCalls::pwrite(file, data, count, offset);
  const std::lock_guard lock(mutex_);
  if (const auto opened = opened_.find(file); opened != opened_.end() && written > 0)
    changes_.push_back({.kind = Kind::write,
                        .file = opened->second.file,
                        .offset = offset,
                        .bytes = {static_cast<const char*>(data), static_cast<std::size_t>(written)}});
  return written;
}

int RecordingCalls::fsync(int file) {
  const std::lock_guard lock(mutex_);
  if (const auto opened = opened_.find(file); opened != opened_.end()) {
    if (opened->second.folder.empty())
      changes_.push_back({.kind = Kind::sync_file, .file = opened->second.file});
    else
      changes_.push_back({.kind = Kind::sync_folder, .path = opened->second.folder});
  }
  return 0;  // nothing cuts the power here
}

int RecordingCalls::ftruncate(int file, off_t size) {
  const int result = SystemCalls::ftruncate(file, size);
  const std::lock_guard lock(mutex_);
  if (const auto opened = opened_.find(file); opened != opened_.end())
    changes_.push_back({.kind = Kind::resize, .file = opened->second.file, .offset = size});
  return result;
}

int RecordingCalls::mkdir(const char* path, mode_t mode) {
  const int result = SystemCalls::mkdir(path, mode);
  if (result == 0) add_name(path, 0, true);
  return result;
}

int RecordingCalls::rmdir(const char* path) {
  const int result = SystemCalls::rmdir(path);
  if (result == 0 && is_below(path)) add({.kind = Kind::remove_name, .path = path});
  return result;
}

int RecordingCalls::unlink(const char* path) {
  const int result = SystemCalls::unlink(path);
  if (result == 0 && is_below(path)) add({.kind = Kind::remove_name, .path = path});
  return result;
}

int RecordingCalls::link(const char* from, const char* to) {
  const int result = SystemCalls::link(from, to);
  struct stat status {};
  if (result == 0 && SystemCalls::lstat(to, &status) == 0) add_name(to, file_of(status, false), false);
  return result;
}

int RecordingCalls::rename(const char* from, const char* to, unsigned flags) {
  const int result = SystemCalls::rename(from, to, flags);
  struct stat status {};
  if (result != 0 || SystemCalls::lstat(to, &status) != 0) return result;
  add_name(to, file_of(status, false), S_ISDIR(status.st_mode));
  if (is_below(from)) add({.kind = Kind::remove_name, .path = from});
  return result;
}

void write_after_power_cut(const std::vector<DiskChange>& changes, std::size_t count, const std::filesystem::path& root,
                           const std::filesystem::path& to, std::mt19937& random) {
  std::map<std::uint64_t, Contents> contents;
  Folders folders;
  for (std::size_t i = 0; i < count; ++i) {
    const DiskChange& change = changes[i];
    switch (change.kind) {
      case Kind::write:
      case Kind::resize: contents[change.file].later.push_back(&change); break;
      case Kind::sync_file: contents[change.file].sync(); break;
      case Kind::sync_folder: folders[change.path].sync(); break;
      case Kind::add_name:
      case Kind::remove_name: folders[change.path.parent_path()].later.push_back(&change); break;
      case Kind::mark: break;
    }
  }
  std::map<std::uint64_t, std::string> files;
  for (std::size_t i = 0; i < count; ++i) files.try_emplace(changes[i].file);  // those that are empty
  for (const auto& [file, each] : contents) files[file] = each.after_power_cut(random);
  write_folder(folders, files, root, to, random);
}

}  // namespace echelon::testing
