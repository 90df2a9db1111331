// The documents are true: snippets are in the source, links and commands exist, and no text names a machine that is not
// the reader's.
#include "tree/tree.h"

#include <cctype>
#include <regex>
#include <set>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct Fence {
  std::string info;  // the text after the backquotes: "cpp src/engine/step.cpp"
  std::string text;
};

std::vector<Fence> fences_of(const std::string& markdown) {
  std::vector<Fence> fences;
  bool is_inside = false;
  for (const auto& line : tree::lines_of(markdown)) {
    if (line.starts_with("```")) {
      is_inside = !is_inside;
      if (is_inside) fences.push_back({line.substr(3), ""});
    } else if (is_inside) {
      fences.back().text += line + "\n";
    }
  }
  return fences;
}

/// Every run of white space as one blank, so that a snippet may be indented or broken differently.
std::string without_layout(const std::string& text) {
  std::istringstream words(text);
  std::string joined;
  for (std::string word; words >> word;) joined += word + " ";
  return joined;
}

std::vector<std::string> documents() {
  std::vector<std::string> files = tree::files_below("docs", {".md"});
  for (const auto& entry : fs::directory_iterator(tree::root())) {
    if (entry.path().extension() == ".md") files.push_back(entry.path().filename().string());
  }
  return files;
}

// A snippet names its file: ```cpp src/engine/step.cpp. Lines of three dots mark omitted lines.
TEST(Docs, SnippetsStandInTheSource) {
  static const std::regex info_pattern(R"(\w+ ((src|tests|scripts|examples|cmake)/\S+))");
  static const std::regex left_out(R"(\n\s*(//|#)? ?\.\.\.\s*\n)");
  for (const auto& document : documents()) {
    for (const auto& fence : fences_of(tree::read_text(tree::root() / document))) {
      std::smatch match;
      if (!std::regex_match(fence.info, match, info_pattern)) continue;
      ASSERT_TRUE(fs::exists(tree::root() / match[1].str()))
          << document << " shows " << match[1] << ", which is not there";
      const std::string source = without_layout(tree::read_text(tree::root() / match[1].str()));
      const std::string snippet = "\n" + fence.text;
      std::size_t from = 0;
      for (std::sregex_token_iterator piece(snippet.begin(), snippet.end(), left_out, -1), end; piece != end; ++piece) {
        const std::string wanted = without_layout(*piece);
        from = source.find(wanted, from);
        ASSERT_NE(from, std::string::npos)
            << document << ": this does not stand in " << match[1] << " (in this order):\n"
            << *piece;
      }
    }
  }
}

/// Whether the compiler reads a file of src/: CMake compiles every .cpp there, and a header is compiled where another
/// file includes it.
bool is_compiled(const std::string& file) {
  if (!file.starts_with("src/")) return false;
  if (file.ends_with(".cpp")) return true;
  const std::string include = "#include \"" + file.substr(4) + "\"";
  return std::ranges::any_of(tree::files_below("src", {".cpp", ".h"}), [&](const std::string& source) {
    return tree::read_text(tree::root() / source).find(include) != std::string::npos;
  });
}

// The snippets of the tour are not assembled into a program of their own. Each is code, not a comment, of a file that
// the build compiles, and SnippetsStandInTheSource compares it with that file word by word.
TEST(Docs, TourIsShortAndItsSnippetsAreCompiledCode) {
  static const std::regex info_pattern(R"(cpp (\S+))"), comment(R"(//[^\n]*)");
  const std::string tour = tree::read_text(tree::root() / "docs/internals/tour.md");
  EXPECT_LE(tree::lines_of(tour).size(), 200U);
  const std::vector<Fence> fences = fences_of(tour);
  EXPECT_GE(fences.size(), 10U);
  for (const Fence& fence : fences) {
    std::smatch match;
    ASSERT_TRUE(std::regex_match(fence.info, match, info_pattern)) << "a fence without its file:\n" << fence.text;
    EXPECT_TRUE(is_compiled(match[1])) << match[1];
    EXPECT_NE(std::regex_replace(fence.text, comment, "").find(';'), std::string::npos)
        << "not code of " << match[1] << ":\n"
        << fence.text;
  }
}

/// The anchors that GitHub gives a page's headings: lower case, blanks as dashes, no punctuation.
std::set<std::string> anchors_of(const std::string& markdown) {
  static const std::regex punctuation("[^a-z0-9 _-]"), blank(" ");
  std::set<std::string> anchors;
  for (const auto& line : tree::lines_of(markdown)) {
    if (!line.starts_with('#')) continue;
    std::string title = line.substr(std::min(line.find_first_not_of("# "), line.size()));
    std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    anchors.insert(std::regex_replace(std::regex_replace(title, punctuation, ""), blank, "-"));
  }
  return anchors;
}

TEST(Docs, LinksLeadToFilesAndHeadings) {
  static const std::regex link(R"(\]\(([^)#\s]*)(#([^)]*))?\))");
  for (const auto& document : documents()) {
    const std::string text = tree::read_text(tree::root() / document);
    for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
      const std::string target = (*match)[1];
      if (target.starts_with("https://") || target.starts_with("http://")) continue;
      const fs::path path = tree::root() / document, wanted = target.empty() ? path : path.parent_path() / target;
      ASSERT_TRUE(fs::exists(wanted)) << document << " links to " << target;
      if (!(*match)[3].matched) continue;
      EXPECT_TRUE(anchors_of(tree::read_text(wanted)).contains((*match)[3]))
          << document << " links to " << target << (*match)[2] << ", which is not a heading";
    }
  }
}

TEST(Docs, EveryPageIsInTheIndex) {
  const std::string index = tree::read_text(tree::root() / "docs/README.md");
  for (const auto& page : tree::files_below("docs", {".md"})) {
    const std::string path = page.substr(std::string_view("docs/").size());
    EXPECT_TRUE(path == "README.md" || index.find("](" + path + ")") != std::string::npos)
        << "docs/README.md does not link to " << path;
  }
}

// In `sh` fences: the programs of this tree, the commands of echelon and the named files must exist.
TEST(Docs, CommandsExist) {
  static const std::regex in_tree(R"((scripts|examples|tests|docs|src|machines|benchmarks)/\S+)");
  for (const auto& document : documents()) {
    for (const auto& fence : fences_of(tree::read_text(tree::root() / document))) {
      if (fence.info != "sh") continue;
      std::istringstream words(fence.text);
      std::string before;
      for (std::string word; words >> word; before = word) {
        const bool is_missing = std::regex_match(word, in_tree) && !fs::exists(tree::root() / word);
        EXPECT_FALSE(is_missing) << document << ": " << word;
        if (before.ends_with("/echelon") && !word.starts_with("-")) {
          EXPECT_TRUE(fs::exists(tree::root() / "src/cli" / (word + ".cpp")))
              << document << ": echelon has no verb " << word;
        }
      }
    }
  }
}

std::vector<std::string> all_text() {
  static const std::set<std::string> not_ours = {".git", "build", ".cache", "corpus", "out", "quickstart-out"};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(tree::root())) {
    const std::string name = entry.path().filename().string();
    if (not_ours.contains(name) || name == "LICENSE") continue;
    if (entry.is_regular_file()) files.push_back(name);
    if (entry.is_directory()) std::ranges::copy(tree::files_below(name, {}), std::back_inserter(files));
  }
  std::erase_if(files, [](const std::string& file) {
    return tree::read_text(tree::root() / file).find('\0') != std::string::npos;
  });
  return files;
}

TEST(Docs, NoPathOfOnePersonsMachine) {
  static const std::regex personal(R"((^|[\s"'`=(])/(home|root|work|workspaces?|Users|mnt|srv|opt|scratch)/\w)");
  for (const auto& file : all_text()) {
    for (const auto& line : tree::lines_of(tree::read_text(tree::root() / file))) {
      EXPECT_FALSE(std::regex_search(line, personal)) << file << ": " << line;
    }
  }
}

TEST(Docs, AddressesAreThoseOfPapersAndStandards) {
  static const std::regex address(R"(https?://([\w.-]+))");
  static const std::set<std::string> known = {"arxiv.org",       "huggingface.co", "github.com",
                                              "www.apache.org",  "pytorch.org",    "json.schemastore.org",
                                              "ui.perfetto.dev", "www.w3.org"};
  for (const auto& file : all_text()) {
    const std::string text = tree::read_text(tree::root() / file);
    for (std::sregex_iterator match(text.begin(), text.end(), address), end; match != end; ++match) {
      EXPECT_TRUE(known.contains((*match)[1])) << file << " speaks of " << (*match)[0];
    }
  }
}

// What scripts/install fetches for a header is something that sources or CMake name.
TEST(Scripts, InstalledHeadersAreUsed) {
  static const std::regex entry(R"(\|\s*header\s+(\w+)\S*\s*\|)");
  std::string sources;
  for (const std::string folder : {"src", "tests", "benchmarks", "cmake"}) {
    for (const auto& file : tree::files_below(folder, {".h", ".cpp", ".cmake"}))
      sources += tree::read_text(tree::root() / file);
  }
  const std::string table = tree::read_text(tree::root() / "scripts/install");
  for (std::sregex_iterator match(table.begin(), table.end(), entry), end; match != end; ++match) {
    EXPECT_NE(sources.find((*match)[1]), std::string::npos) << "nothing uses " << (*match)[1];
  }
}

}  // namespace
}  // namespace echelon
