// What an operation costs: the files that its addition touches.
#include "tree/tree.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <regex>
#include <set>

namespace echelon {
namespace {

/// Its arguments, what it states about itself, the list, three backends and two tests.
constexpr std::size_t most_files = 8;

struct Named {
  std::string name, args;
};

std::vector<Named> operations() {
  static const std::regex pattern(R"(^\s*X\((\w+), (\w+)\))");
  std::vector<Named> all;
  for (const auto& line : tree::lines_of(tree::read_text(tree::root() / "src/ops/operation.h")))
    if (std::smatch match; std::regex_search(line, match, pattern)) all.push_back({match[1], match[2]});
  return all;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto is_of_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if ((at == 0 || !is_of_word(at - 1)) && !is_of_word(at + word.size())) return true;
  return false;
}

/// Text by file.
using Files = std::map<std::string, std::string>;

Files files_below(const std::vector<std::string>& folders) {
  Files files;
  for (const std::string& folder : folders)
    for (const std::string& file : tree::files_below(folder, {".h", ".cpp", ".cu", ".cuh", ".txt"}))
      files[file] = tree::read_text(tree::root() / file);
  return files;
}

// Counted of the one that merges parts of attention, which one layer alone calls: callers and their tests do not count.
TEST(Operations, AnOperationIsInEightFilesAtMost) {
  const std::vector<Named> all = operations();
  const auto merge =
      std::ranges::find_if(all, [](const Named& operation) { return operation.name.starts_with("merge"); });
  ASSERT_NE(merge, all.end());
  std::vector<std::string> found;
  for (const auto& [file, text] : files_below({"src", "tests"}))
    if (!file.starts_with("src/nn/") && file.find("_faults") == std::string::npos &&
        file.find("/ring_") == std::string::npos && (has_word(text, merge->name) || has_word(text, merge->args)))
      found.push_back(file);
  EXPECT_LE(found.size(), most_files) << fmt::format("{}", fmt::join(found, "\n"));
  EXPECT_GE(found.size(), std::size_t{6}) << "the files are not found";
}

// Of every operation: what all of them share names them in the list alone. Three backends and two tests make eight.
TEST(Operations, AnOperationHasOneFileAndOneLine) {
  const std::set<std::pair<std::string, std::string>> exceptions = {
      {"matmul", "src/ops/trace/trace_ops.cpp"},   // a record says whether a matmul is in float8
      {"add", "src/ops/operations/norm_rule.h"}};  // norms add a residual first
  Files files = files_below({"src/ops", "src/types", "src/comm", "src/blueprint"});
  std::erase_if(files, [](const auto& file) {
    return file.first.starts_with("src/ops/reference/") || file.first.starts_with("src/ops/cpu/") ||
           file.first.starts_with("src/ops/gpu/");
  });
  for (const auto& [name, args] : operations()) {
    std::vector<std::string> found;
    for (const auto& [file, text] : files)
      if (has_word(text, args) && !exceptions.contains({name, file})) found.push_back(file);
    ASSERT_EQ(found.size(), 3U) << name << " is in " << fmt::format("{}", fmt::join(found, ", "));
    EXPECT_EQ(found[0], "src/ops/operation.h");
    EXPECT_EQ(std::filesystem::path(found[1]).stem(), std::filesystem::path(found[2]).stem());
    EXPECT_TRUE(found[1].starts_with("src/ops/operations/")) << found[1];
  }
}

// No file but the list names many of them.
TEST(Operations, NoFilePoolsThem) {
  const std::vector<Named> all = operations();
  ASSERT_GT(all.size(), 30U);
  for (const std::string& file : tree::files_below("src", {".h", ".cpp"})) {
    if (file == "src/ops/operation.h") continue;
    const std::string text = tree::read_text(tree::root() / file);
    const auto num_named = std::ranges::count_if(
        all, [&](const Named& operation) { return text.find(operation.args) != std::string::npos; });
    EXPECT_LE(num_named, static_cast<std::ptrdiff_t>(all.size()) / 3) << file;
  }
}

}  // namespace
}  // namespace echelon
