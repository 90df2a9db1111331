// Who may include whom: every #include of src/ is checked against one table, the table against the libraries that CMake
// links.
#include "tree/tree.h"

#include <map>
#include <regex>
#include <set>

namespace echelon {
namespace {

/// folder of src/ -> what its files may include besides themselves and the standard library: a folder ("base/") or one
/// header ("ops/ops.h"). Read from the top: a folder includes only folders that stand above it.
using Layers = std::vector<std::pair<std::string, std::vector<std::string>>>;

const Layers& layers() {
  static const Layers table = {
      {"base", {}},
      {"tensor", {"base/"}},
      {"machine", {"base/"}},
      {"schedule", {"base/"}},
      {"spec", {"schedule/", "base/"}},  // a config names a schedule, and the table of schedules says what there is
      {"ops", {"tensor/", "base/"}},
      {"comm", {"spec/mesh_shape.h", "machine/", "tensor/", "base/"}},
      {"backend", {"ops/", "comm/", "spec/mesh_shape.h", "tensor/", "base/"}},
      {"cuda", {"backend/", "ops/", "comm/", "spec/mesh_shape.h", "tensor/", "base/"}},
      {"types", {"ops/", "comm/", "spec/mesh_shape.h", "tensor/", "base/"}},
      {"nn", {"ops/ops.h", "comm/comm.h", "comm/mesh.h", "tensor/", "spec/", "base/"}},
      {"optim", {"nn/", "ops/ops.h", "comm/comm.h", "comm/mesh.h", "tensor/", "spec/", "base/"}},
      {"blueprint",
       {"optim/", "nn/", "ops/ops.h", "ops/trace/", "comm/comm.h", "comm/mesh.h", "comm/trace/", "schedule/", "spec/",
        "tensor/", "base/"}},
      {"predict",
       {"blueprint/", "optim/", "nn/", "ops/ops.h", "ops/trace/", "comm/comm.h", "comm/trace/", "schedule/", "spec/",
        "tensor/", "base/"}},
      {"data", {"blueprint/", "spec/", "tensor/", "base/"}},
      {"checkpoint", {"blueprint/", "nn/", "spec/", "tensor/", "base/"}},
      {"report", {"schedule/", "spec/", "base/"}},
      {"engine",
       {"blueprint/", "data/", "checkpoint/", "report/", "optim/", "nn/", "types/", "backend/", "ops/", "comm/",
        "schedule/", "spec/", "machine/", "tensor/", "base/"}},
      {"cli",
       {"predict/", "engine/", "report/", "data/", "checkpoint/", "blueprint/", "backend/backend.h", "spec/",
        "schedule/", "ops/", "comm/", "tensor/", "base/"}},
  };
  return table;
}

/// Headers of other software that stay in one place: pattern of the header -> pattern of where it may be included.
const std::vector<std::pair<std::string, std::string>>& vendors() {
  static const std::vector<std::pair<std::string, std::string>> table = {
      {R"((cblas|lapacke|openblas_config)\.h)", "ops/cpu/"},
      {R"(hwy/.*)", "(ops/cpu|comm/kernels)/"},
      {R"(.*mmintrin\.h|x86intrin\.h)", "ops/cpu/"},
      {R"((cuda_|cublas|cudnn).*)", "cuda/"},
      {R"(nccl\.h)", "cuda/comm/"},
      {R"(mpi\.h)", "comm/mpi/"},
      {R"(hwloc\.h)", "machine/"},
      {R"(toml(\+\+)?[/.].*)", "spec/"},
      {R"(CLI/.*)", "cli/"},
      {R"(pcre2\.h)", "data/"},
      {R"(utf8proc\.h)", "data/"},
  };
  return table;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.find('/')); }

std::vector<std::string> sources() {
  std::vector<std::string> files;
  for (const auto& file : tree::files_below("src", {".h", ".cpp", ".cu", ".cuh"}))
    files.push_back(file.substr(std::string_view("src/").size()));
  return files;
}

std::vector<std::string> includes_of(const std::string& source) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<std::string> headers;
  for (const auto& line : tree::lines_of(tree::read_text(tree::root() / "src" / source))) {
    if (std::smatch match; std::regex_search(line, match, pattern)) headers.push_back(match[1]);
  }
  return headers;
}

TEST(Layering, EveryIncludeIsInTheTable) {
  const std::map<std::string, std::vector<std::string>> allowed(layers().begin(), layers().end());
  for (const auto& source : sources()) {
    if (source == "main.cpp") continue;
    ASSERT_TRUE(allowed.contains(folder_of(source)))
        << "src/" << source << " lies in a folder that the table of layers does not have";
    for (const auto& header : includes_of(source)) {
      if (!allowed.contains(folder_of(header)) || folder_of(header) == folder_of(source)) continue;
      const auto& prefixes = allowed.at(folder_of(source));
      EXPECT_TRUE(std::ranges::any_of(prefixes, [&](const auto& prefix) { return header.starts_with(prefix); }))
          << "src/" << source << " includes " << header << ", which its layer may not see";
    }
  }
}

TEST(Layering, TheTableHasNoCycleAndAFolderSeesOnlyWhatStandsAboveIt) {
  std::set<std::string> above;
  for (const auto& [folder, prefixes] : layers()) {
    for (const auto& prefix : prefixes)
      EXPECT_TRUE(above.contains(folder_of(prefix))) << folder << " sees " << prefix << ", which comes later";
    above.insert(folder);
  }
}

TEST(Layering, CMakeLinksWhatTheTableAllows) {
  static const std::regex pattern(
      R"(echelon_(?:folder|plugin)\((\w+)(?: TOGETHER)?(?: COLD)?(?: USES ([\w ]*?))?(?: LINKS [^)]*)?\))");
  const std::string cmake = tree::read_text(tree::root() / "CMakeLists.txt");
  std::map<std::string, std::set<std::string>> linked;
  for (std::sregex_iterator match(cmake.begin(), cmake.end(), pattern), end; match != end; ++match) {
    std::istringstream names((*match)[2].str());
    linked[(*match)[1]] = {std::istream_iterator<std::string>(names), {}};
  }
  std::map<std::string, std::set<std::string>> in_table;
  for (const auto& [folder, prefixes] : layers()) {
    in_table[folder];
    for (const auto& prefix : prefixes) in_table[folder].insert(folder_of(prefix));
  }
  EXPECT_EQ(linked, in_table);
}

TEST(Layering, HeadersOfVendorsStayInTheirFolder) {
  for (const auto& source : sources()) {
    for (const auto& header : includes_of(source)) {
      for (const auto& [pattern, home] : vendors()) {
        const bool is_away =
            std::regex_match(header, std::regex(pattern)) && !std::regex_search(source, std::regex("^" + home));
        EXPECT_FALSE(is_away) << "src/" << source << " includes " << header;
      }
    }
  }
}

// An absent backend is a file of its own that CMake chooses.
TEST(Layering, NoConditionalCompilationAboveTheBackends) {
  static const std::regex conditional(R"(^\s*#\s*(if|ifdef|ifndef|elif)\b)");
  static const std::regex backend(R"((ops|comm)/\w+/.*|cuda/device/.*)");
  for (const auto& source : sources()) {
    if (std::regex_match(source, backend)) continue;
    for (const auto& line : tree::lines_of(tree::read_text(tree::root() / "src" / source))) {
      EXPECT_FALSE(std::regex_search(line, conditional)) << "src/" << source << ": " << line;
    }
  }
}

// Two types of one name would be one to the linker, which keeps the constructors and destructors of whichever it meets
// first.
TEST(Layering, ATypeOfAHeaderHasItsNameForItself) {
  const std::regex type(R"((?:struct|class|enum class) (\w+)(?: final)?(?: :.*| \{.*)?)");
  std::map<std::string, std::string> headers;
  for (const std::string& file : tree::files_below("src", {".h"})) {
    if (file.ends_with("-inl.h") || file.starts_with("src/cuda/"))
      continue;  // in a namespace of each instruction set, or of their own
    for (const std::string& line : tree::lines_of(tree::read_text(tree::root() / file))) {
      std::smatch match;
      if (!std::regex_match(line, match, type))
        continue;  // what is indented belongs to another type, what ends in a semicolon stands elsewhere
      const auto [known, is_new] = headers.emplace(match[1], file);
      EXPECT_TRUE(is_new) << match[1] << " stands in " << known->second << " and in " << file;
    }
  }
  EXPECT_GT(headers.size(), 200U);
}

// Highway's -inl.h are included once per processor and carry guards of their own.
TEST(Layering, HeadersOpenWithWhatTheyAre) {
  for (const auto& source : sources()) {
    if (!source.ends_with(".h")) continue;
    const std::string text = tree::read_text(tree::root() / "src" / source);
    EXPECT_TRUE(text.starts_with("//")) << "src/" << source << " does not open with a comment";
    EXPECT_TRUE(source.ends_with("-inl.h") || text.find("\n#pragma once\n") != std::string::npos)
        << "src/" << source << " is not included once";
  }
}

}  // namespace
}  // namespace echelon
