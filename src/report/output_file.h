// An output file named by a flag.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

class OutputFile {
 public:
  /// Throws Error with a sentence about `flag` (such as "--output") if the file cannot be written. Constructed before
  /// the work, so that the error comes early. An existing file is unchanged until `write`. A message for a path that is
  /// a folder suggests `usual_name`.
  OutputFile(std::string_view flag, std::string path, std::string_view usual_name);

  /// None if the path is empty: the flag was not given.
  [[nodiscard]] static std::optional<OutputFile> unless_empty(std::string_view flag, const std::string& path,
                                                              std::string_view usual_name);

  /// Replaces an existing file. Throws Failure if the disk is full; then no partial file remains.
  void write(std::string_view text) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace echelon
