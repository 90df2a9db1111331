#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "gtest/gtest.h"

namespace echelon {

/// A new folder for the files of this process, removed when it ends: tests that run at the same time never share a
/// file. The path ends with a slash.
inline const std::string& scratch_folder() {
  struct Folder {
    Folder() {
      if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder can be made at " + path);
      path += '/';
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
      std::error_code left;
      if (getpid() == maker) std::filesystem::remove_all(path, left);  // and not in a process that was forked
    }
    pid_t maker = getpid();
    std::string path = ::testing::TempDir() + "echelon-test-XXXXXX";
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace echelon
