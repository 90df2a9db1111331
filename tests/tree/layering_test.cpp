// Who may include whom: every #include of src/ is checked against one table, the table against the libraries that CMake
// links.
#include "tree/tree.h"

#include <map>
#include <regex>
#include <set>

namespace echelon {
namespace {

/// folder of src/ -> what its files may include in addition to themselves and the standard library: a folder ("base/")
/// or one header ("ops/ops.h"). Read from the top: a folder includes only folders that are listed above it.
using Layers = std::vector<std::pair<std::string, std::vector<std::string>>>;

const Layers& layers() {
  static const Layers table = {
      {"base", {}},
      {"files", {"base/"}},
      {"context", {"base/"}},
      {"tensor", {"base/"}},
      {"machine", {"base/"}},
      {"schedule", {"base/"}},
      {"spec", {"context/context_method.h", "context/load_balancer.h", "schedule/", "tensor/", "base/"}},
      {"types", {"spec/groups.h", "spec/mesh_shape.h", "tensor/", "base/"}},
      {"ops", {"types/", "tensor/", "base/"}},
      {"comm",
       {"types/", "spec/config/run_choices.h", "spec/groups.h", "spec/mesh_shape.h", "machine/", "tensor/", "base/"}},
      {"backend", {"comm/", "ops/", "spec/config/run_choices.h", "tensor/", "base/"}},
      {"cuda", {"backend/", "comm/", "ops/", "spec/", "tensor/", "base/"}},
      {"nn",
       {"comm/comm.h", "comm/mesh.h", "ops/ops.h", "ops/operations/mixture/balance.h", "context/", "spec/", "tensor/",
        "base/"}},
      {"optim", {"nn/", "comm/mesh.h", "ops/ops.h", "tensor/"}},
      {"executor", {"optim/", "nn/", "comm/mesh.h", "ops/ops.h", "spec/", "schedule/", "tensor/", "base/"}},
      {"checkpoint", {"files/", "spec/", "tensor/", "base/"}},
      {"blueprint",
       {"executor/", "optim/", "nn/", "checkpoint/state/", "comm/trace/", "ops/trace/", "context/", "spec/",
        "schedule/", "tensor/", "base/"}},
      {"predict", {"blueprint/", "nn/", "context/", "comm/trace/", "ops/trace/", "spec/", "schedule/", "base/"}},
      {"plan", {"predict/", "blueprint/", "nn/", "spec/", "schedule/", "base/"}},
      {"data", {"files/", "tensor/", "base/"}},
      {"report", {"files/", "spec/", "schedule/", "base/"}},
      {"engine",
       {"report/", "checkpoint/", "data/", "blueprint/", "executor/", "optim/", "nn/", "backend/", "comm/", "ops/",
        "types/", "context/", "spec/", "machine/", "tensor/", "base/"}},
      {"measure",
       {"engine/", "report/", "files/", "backend/", "comm/", "ops/", "spec/", "machine/", "tensor/", "base/"}},
      {"verify",
       {"engine/", "report/", "data/", "blueprint/", "executor/", "context/", "nn/", "ops/", "spec/", "tensor/",
        "base/"}},
      {"train",
       {"measure/", "engine/", "report/", "checkpoint/", "files/", "data/", "blueprint/", "comm/", "spec/", "tensor/",
        "base/"}},
      {"pages",
       {"train/", "measure/", "engine/", "report/", "plan/", "predict/", "blueprint/", "nn/", "backend/", "context/",
        "spec/", "schedule/", "base/"}},
      {"cli",
       {"pages/", "train/", "verify/", "measure/", "engine/", "report/", "checkpoint/", "data/", "plan/", "predict/",
        "blueprint/", "backend/backend.h", "comm/", "ops/", "spec/", "schedule/", "base/"}},
  };
  return table;
}

/// Headers of other software that only one place may include: pattern of the header -> pattern of where it may be
/// included.
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

TEST(Layering, EveryPermissionIsUsed) {
  std::map<std::string, std::set<std::string>> included;  // by folder
  for (const auto& source : sources())
    for (const auto& header : includes_of(source)) included[folder_of(source)].insert(header);
  for (const auto& [folder, prefixes] : layers())
    for (const auto& prefix : prefixes)
      EXPECT_TRUE(std::ranges::any_of(included[folder], [&](const auto& header) { return header.starts_with(prefix); }))
          << folder << " includes nothing of " << prefix;
}

/// The folder of a file, with those that it is in.
std::string room_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool is_inside(const std::string& room, const std::string& outer) { return room.starts_with(outer + "/"); }

// Also inside a folder of the table: its rooms include each other one way only. A room and the folder that it is in may
// list each other, as ops/operation.h lists what is in ops/operations.
TEST(Layering, RoomsHaveNoCycle) {
  const std::vector<std::string> files = sources();
  const std::set<std::string> known(files.begin(), files.end());
  std::map<std::string, std::set<std::string>> arrows;
  for (const auto& source : files)
    for (const auto& header : includes_of(source)) {
      if (!known.contains(header)) continue;
      const std::string from = room_of(source), to = room_of(header);
      if (from != to && !is_inside(from, to) && !is_inside(to, from)) arrows[from].insert(to);
    }
  // Removes rooms that include nothing that is left.
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (auto room = arrows.begin(); room != arrows.end();) {
      std::erase_if(room->second, [&](const std::string& target) { return !arrows.contains(target); });
      const bool is_free = room->second.empty();
      goes_on = goes_on || is_free;
      room = is_free ? arrows.erase(room) : std::next(room);
    }
  }
  for (const auto& [room, targets] : arrows)
    ADD_FAILURE() << "in or below a circle: " << room << " -> " << *targets.begin();
}

// A backend may have many kernels, one per file.
TEST(Layering, NoRoomHasMoreThanThirtyFiles) {
  std::map<std::string, int> sizes;
  for (const auto& source : sources()) ++sizes[room_of(source)];
  for (const auto& [room, size] : sizes)
    EXPECT_LE(room == "ops/cpu" || room == "cuda/ops" ? 0 : size, 30) << "src/" << room;
}

TEST(Layering, TheTableHasNoCycleAndAFolderSeesOnlyWhatStandsAboveIt) {
  std::set<std::string> above;
  for (const auto& [folder, prefixes] : layers()) {
    for (const auto& prefix : prefixes)
      EXPECT_TRUE(above.contains(folder_of(prefix))) << folder << " sees " << prefix << ", which comes later";
    above.insert(folder);
  }
}

/// Folders of tests/ that test several folders of src/, or none.
const std::set<std::string>& folders_without_sources() {
  static const std::set<std::string> folders = {
      "fuzz",     // readers of files that are not trusted
      "hosts",    // ranks on several hosts, through the program
      "interop",  // models and tokenizers of other software
      "parity",   // every layout against one rank
      "resume",   // runs that resume from checkpoints, through all layers
      "tree",     // the sources as text
  };
  return folders;
}

TEST(Layering, TestsMirrorTheSources) {
  std::set<std::string> folders;
  for (const auto& file : tree::files_below("tests", {})) {
    const std::string inner = file.substr(std::string_view("tests/").size());
    if (inner.find('/') != std::string::npos) folders.insert(folder_of(inner));
  }
  ASSERT_GT(folders.size(), 20U);
  for (const auto& [folder, prefixes] : layers()) folders.erase(folder);
  EXPECT_EQ(folders, folders_without_sources()) << "each other folder of tests/ has the name of one of src/";
}

// What a test includes first, with an empty line below it, is what it tests.
TEST(Layering, ATestIsInTheFolderOfWhatItTests) {
  static const std::regex pattern("#include \"(\\w+)/[\\w/-]+\\.h\"");
  int num_found = 0;
  for (const auto& file : tree::files_below("tests", {".cpp"})) {
    const std::string folder = folder_of(file.substr(std::string_view("tests/").size()));
    if (!file.ends_with("_test.cpp") || folders_without_sources().contains(folder)) continue;
    const std::vector<std::string> lines = tree::lines_of(tree::read_text(tree::root() / file));
    const auto first = std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("#include"); });
    std::smatch match;
    if (first == lines.end() || !std::next(first)->empty() || !std::regex_match(*first, match, pattern)) continue;
    EXPECT_EQ(match[1], folder) << file << " includes first: " << *first;
    ++num_found;
  }
  EXPECT_GT(num_found, 50);
}

/// Of docs/internals/rooms.md: the line of each folder in the drawing, from the top.
std::map<std::string, int> drawn_floors() {
  std::map<std::string, int> floors;
  const std::string page = tree::read_text(tree::root() / "docs/internals/rooms.md");
  const std::size_t begin = page.find("```text\n") + 8;
  int floor = 0;
  for (const auto& line : tree::lines_of(page.substr(begin, page.find("```", begin) - begin))) {
    constexpr std::size_t remarks = 49;  // the column where they start
    std::istringstream folders(line.substr(0, remarks));
    for (std::string folder; folders >> folder;) floors[folder] = floor;
    ++floor;
  }
  return floors;
}

TEST(Layering, ThePageOfRoomsDrawsTheTable) {
  const std::map<std::string, int> floors = drawn_floors();
  EXPECT_EQ(floors.size(), layers().size());
  for (const auto& [folder, prefixes] : layers()) {
    ASSERT_TRUE(floors.contains(folder)) << folder;
    for (const auto& prefix : prefixes)
      EXPECT_GT(floors.at(folder_of(prefix)), floors.at(folder)) << folder << " includes " << prefix;
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
    // In a namespace of each instruction set, or of their own.
    if (file.ends_with("-inl.h") || file.starts_with("src/cuda/")) continue;
    for (const std::string& line : tree::lines_of(tree::read_text(tree::root() / file))) {
      std::smatch match;
      // Indented lines belong to another type; a line that ends in a semicolon is only a declaration.
      if (!std::regex_match(line, match, type)) continue;
      const auto [known, is_new] = headers.emplace(match[1], file);
      EXPECT_TRUE(is_new) << match[1] << " stands in " << known->second << " and in " << file;
    }
  }
  EXPECT_GT(headers.size(), 200U);
}

// Highway's -inl.h are included once per instruction set and have their own guards.
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
