// Sees whether anybody looks into a folder or changes it.
#pragma once

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace echelon {

/// Every open of a file or folder below a folder, from now on.
class OpenWatch {
 public:
  explicit OpenWatch(const std::filesystem::path& folder) : events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    std::vector<std::filesystem::path> paths = {folder};  // all of them first, since this opens folders too
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) paths.push_back(entry.path());
    for (const std::filesystem::path& path : paths) add(path);
  }
  ~OpenWatch() { close(events_); }
  OpenWatch(const OpenWatch&) = delete;
  OpenWatch& operator=(const OpenWatch&) = delete;

  [[nodiscard]] bool has_seen_one() const {
    char buffer[4096];
    return read(events_, buffer, sizeof buffer) > 0;
  }

 private:
  void add(const std::filesystem::path& path) const {
    EXPECT_GE(inotify_add_watch(events_, path.c_str(), IN_OPEN | IN_MODIFY | IN_CREATE | IN_DELETE | IN_ATTRIB), 0);
  }
  int events_;
};

}  // namespace echelon
