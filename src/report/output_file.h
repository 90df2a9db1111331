// A file that a flag names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

class OutputFile {
 public:
  /// Throws Error with a sentence about `flag` (such as "--output") if nothing can be written there; asked before the
  /// work whose outcome is written, whose end would be a late moment to hear of it. What stands there stays until
  /// `write`. `usual_name` is what a message offers for a path that is a folder.
  OutputFile(std::string_view flag, std::string path, std::string_view usual_name);

  /// None for an empty path: the flag was not given.
  [[nodiscard]] static std::optional<OutputFile> unless_empty(std::string_view flag, const std::string& path,
                                                              std::string_view usual_name);

  /// In place of what was there. Throws Failure if the disk takes no more; then no part of the file is left.
  void write(std::string_view text) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace echelon
