#include "data/corpus_files.h"

#include "base/error.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

namespace echelon {
namespace {

namespace fs = std::filesystem;

bool matches(const std::string& name, const std::vector<std::string>& globs) {
  const auto match = [&](const std::string& glob) {
    return glob == "*." ? name.find('.') == std::string::npos : fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  };
  return globs.empty() || std::any_of(globs.begin(), globs.end(), match);
}

void search(const fs::path& folder, const std::vector<std::string>& globs, const fs::path& not_below,
            std::vector<FoundFile>& found) {
  // Links to folders are not followed (they may form loops); links to files are, since download caches consist of them.
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') ||
        (entry->is_directory(ignored) && fs::weakly_canonical(entry->path(), ignored) == not_below)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored) && matches(name, globs)) {
      found.push_back({entry->path().string(), entry->path().lexically_relative(folder).string()});
    }
  }
}

std::vector<std::string> expand(const std::string& input) {
  std::error_code ignored;
  if (fs::exists(input, ignored)) return {input};
  glob_t matches{};
  const int result = glob(input.c_str(), 0, nullptr, &matches);
  std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + (result == 0 ? matches.gl_pathc : 0));
  globfree(&matches);
  require(!paths.empty(), "prepare --input={}: there is no such file or folder", input);
  return paths;
}

/// Otherwise the output of one preparation would be the input of the next.
void require_not_below(const fs::path& excluded, const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  const bool is_below =
      !excluded.empty() &&
      std::mismatch(excluded.begin(), excluded.end(), real.begin(), real.end()).first == excluded.end();
  require(!is_below, "prepare --input={} is in the folder that --output={} writes; did you mean --output={}?", path,
          excluded.string(), (excluded / "corpus").string());
}

}  // namespace

std::vector<FoundFile> find_files(const std::vector<std::string>& inputs, const std::vector<std::string>& globs,
                                  const std::string& not_below) {
  std::error_code ignored;
  const fs::path excluded = not_below.empty() ? fs::path() : fs::weakly_canonical(not_below, ignored);
  std::vector<FoundFile> found;
  for (const std::string& input : inputs) {
    for (const std::string& path : expand(input)) {
      require_not_below(excluded, path);
      try {
        fs::is_directory(path) ? search(path, globs, excluded, found)
                               : found.push_back({path, fs::path(path).filename().string()});
      } catch (const fs::filesystem_error& error) {
        throw Error(fmt::format("{} cannot be read: {}", error.path1().empty() ? path : error.path1().string(),
                                error.code().message()));
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [](const FoundFile& a, const FoundFile& b) { return std::tie(a.name, a.path) < std::tie(b.name, b.path); });
  std::set<std::string> seen;
  std::erase_if(found, [&](const FoundFile& file) {
    std::error_code unresolved;  // reading it reports the reason
    const std::string real = fs::canonical(file.path, unresolved).string();
    return !seen.insert(unresolved ? file.path : real).second;
  });
  return found;
}

}  // namespace echelon
