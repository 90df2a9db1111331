// Finding the files of a corpus.
#pragma once

#include <string>
#include <vector>

namespace echelon {

struct FoundFile {
  std::string path;
  std::string name;  // below the folder it was found in, or the file's own name
};

/// All files that `inputs` name, each once, sorted by name. Folders give the files that match one of `globs`, except
/// below `not_below`. Throws Error on an input that does not exist or is `not_below` or below it, and on a folder that
/// cannot be read.
[[nodiscard]] std::vector<FoundFile> find_files(const std::vector<std::string>& inputs,
                                                const std::vector<std::string>& globs, const std::string& not_below);

}  // namespace echelon
