#include "files/folder_links.h"

#include "base/error.h"
#include "files/system_calls.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace echelon {
namespace {

std::filesystem::path real_path_of(const std::filesystem::path& path) {
  std::string real;
  const int result = system_calls().real_path(path.c_str(), &real);
  require(result == 0, "{}: {}", path.string(), std::generic_category().message(errno));
  return real;
}

/// Whether `file` is CACHE/blobs/HASH of a folder CACHE/snapshots/REVISION, or of one below it.
bool is_blob_of(const std::filesystem::path& file, std::filesystem::path folder) {
  const std::filesystem::path blobs = file.parent_path(), snapshots = blobs.parent_path() / "snapshots";
  while (folder.has_relative_path() && folder.parent_path() != snapshots) folder = folder.parent_path();
  return blobs.filename() == "blobs" && folder.has_relative_path();
}

}  // namespace

std::filesystem::path path_in_folder(const std::filesystem::path& folder, std::string_view name) {
  std::filesystem::path path = folder / name;
  struct stat status {};
  if (system_calls().lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  const std::filesystem::path real_folder = real_path_of(folder), real = real_path_of(path);
  const auto [end_of_folder, rest] = std::ranges::mismatch(real_folder, real);
  require(end_of_folder == real_folder.end() || is_blob_of(real, real_folder),
          "{} is a link to {}, which is outside of its folder; copy the file to its place", path.string(),
          real.string());
  return real;
}

}  // namespace echelon
