// A folder of files that an input becomes, and its parts.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace echelon::fuzz {

/// A new folder in TMPDIR, deleted at the end of the program.
class InputFolder {
 public:
  InputFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "echelon-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder can be made at " + pattern);
    path_ = pattern;
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void put(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void remove(std::string_view name) const { ::unlink((path_ / name).c_str()); }

 private:
  std::filesystem::path path_;
};

/// What is before the next line "%", which is taken off the text too.
inline std::string_view take_part(std::string_view& text) {
  constexpr std::string_view separator = "\n%\n";
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + separator.size());
  return part;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace echelon::fuzz
