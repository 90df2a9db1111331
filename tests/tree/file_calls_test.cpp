// All calls by which a run reads and writes below its data and output folders go through src/files, where tests can let
// them fail.
#include "tree/tree.h"

#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <set>

namespace echelon {
namespace {

/// Folders and files of src/ that ask the system on their own, and what for.
const std::map<std::string, std::string>& others() {
  static const std::map<std::string, std::string> table = {
      {"files/", "the interface itself"},
      {"base/text_file.cpp", "small texts that a user names"},
      {"spec/", "configs and descriptions of machines that a user names"},
      {"machine/", "/proc and /sys"},
      {"measure/", "/proc, and rates that are kept in the user's cache"},
      {"backend/plugin.cpp", "the library of the GPU backend"},
      {"ops/cpu/blas.cpp", "whether there is memory"},
      {"cuda/comm/placement.cpp", "/proc"},
      {"tensor/memory_space.cpp", "memory"},
      {"data/files/mapped_file", "tokenizers that a user names"},
      {"data/corpus.cpp", "texts that echelon prepare reads"},
      {"report/output_file.cpp", "files that flags name"},
      {"plan/space/request.cpp", "models that a user names"},
      {"verify/setup.cpp", "datasets that a config names, which are not read"},
      {"cli/", "files that flags name"},
  };
  return table;
}

TEST(FileCalls, GoThroughOneInterface) {
  static const std::regex call(
      R"(\b(i|o)?fstream\b|\bfopen\(|\bmmap\()"
      R"(|std::filesystem::(exists|is_\w+|status|symlink_status|file_size|space|remove|remove_all|rename|copy\w*|resize_file|)"
      R"(create_\w+|directory_iterator|recursive_directory_iterator|canonical|weakly_canonical|last_write_time)\b)"
      R"(|(^|[^\w.>])(::)?(open|creat|read|write|pread|pwrite|fsync|fdatasync|ftruncate|unlink|link|rename|renameat2|mkdir|rmdir|)"
      R"(opendir|statvfs|lstat|fallocate|flock)\((path|name|file|fd|descriptor|\w+\.c_str\(\)))");
  std::set<std::string> used;
  for (const std::string& path : tree::files_below("src", {".h", ".cpp", ".cu"})) {
    const std::string source = path.substr(std::string_view("src/").size());
    for (const std::string& line : tree::lines_of(tree::read_text(tree::root() / path))) {
      const std::string code = line.substr(0, line.find("//"));
      if (!std::regex_search(code, call)) continue;
      const auto other =
          std::ranges::find_if(others(), [&](const auto& entry) { return source.starts_with(entry.first); });
      if (other != others().end())
        used.insert(other->first);
      else
        ADD_FAILURE() << "src/" << source << " goes around src/files: " << line;
    }
  }
  for (const auto& [place, reason] : others()) EXPECT_TRUE(used.contains(place)) << place << " makes no such call";
}

}  // namespace
}  // namespace echelon
