// The source tree as text, for the tests that read it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::tree {

inline std::filesystem::path root() { return ECHELON_SOURCE_DIR; }

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Files below `folder` (relative to the root) with one of the extensions, relative to the root, sorted; all files if
/// there are no extensions.
inline std::vector<std::string> files_below(const std::string& folder, std::vector<std::string> extensions) {
  std::vector<std::string> files;
  if (!std::filesystem::exists(root() / folder)) return files;
  for (std::filesystem::recursive_directory_iterator entry(root() / folder), end; entry != end; ++entry) {
    if (!entry->is_regular_file()) continue;
    const bool is_wanted =
        extensions.empty() || std::ranges::find(extensions, entry->path().extension().string()) != extensions.end();
    if (is_wanted) files.push_back(std::filesystem::relative(entry->path(), root()).string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace echelon::tree
