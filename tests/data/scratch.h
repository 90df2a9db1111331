// A folder with files for one test, removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace echelon {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "echelon-data-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    folder_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

 private:
  std::filesystem::path folder_;
};

/// The sentence of the Error that `run` throws; a failure of the test if it throws none.
template <class Run>
std::string sentence_of(Run run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace echelon
