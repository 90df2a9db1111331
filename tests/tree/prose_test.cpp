// What people read is plain technical English: glossary.txt says which words are not used, prose_inputs.txt what is
// read.
#include "tree/prose.h"
#include "tree/tree.h"

#include <array>
#include <cstdio>
#include <memory>

namespace echelon {
namespace {

constexpr int longest_sentence = 40, longest_cell = 25, longest_line = 100, most_words = 40'000;
/// The first commit that the rules for subjects do not cover; those after it are checked.
constexpr const char* last_free_commit = "bd9838f30b18ebb8ceec5ac6b57a5de65e7f4e3d";

struct ProseInput {
  tree::ProseKind kind{};
  std::string file;
};

tree::ProseKind prose_kind(const std::string& word) {
  if (word == "docs") return tree::ProseKind::docs;
  if (word == "comments") return tree::ProseKind::comments;
  if (word == "messages") return tree::ProseKind::messages;
  EXPECT_EQ(word, "names") << "in tests/tree/prose_inputs.txt";
  return tree::ProseKind::names;
}

bool is_generated(const std::string& text) { return text.starts_with("<!-- generated"); }

std::vector<ProseInput> prose_inputs() {
  std::vector<ProseInput> inputs;
  for (const std::string& line : tree::lines_of(tree::read_text(tree::root() / "tests/tree/prose_inputs.txt"))) {
    if (line.empty() || line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string kind, path;
    words >> kind >> path;
    const bool is_page = prose_kind(kind) == tree::ProseKind::docs;
    std::vector<std::string> files = {path};
    if (std::filesystem::is_directory(tree::root() / path))
      files = tree::files_below(
          path, is_page ? std::vector<std::string>{".md"} : std::vector<std::string>{".h", ".cpp", ".cu", ".cuh"});
    EXPECT_FALSE(files.empty()) << "tests/tree/prose_inputs.txt: nothing to read in " << path;
    for (std::string& file : files) inputs.push_back({prose_kind(kind), std::move(file)});
  }
  return inputs;
}

std::vector<tree::Passage> passages_of(const ProseInput& input) {
  const std::string text = tree::read_text(tree::root() / input.file);
  switch (input.kind) {
    case tree::ProseKind::docs:
      return is_generated(text) ? std::vector<tree::Passage>{} : tree::markdown_passages(input.file, text);
    case tree::ProseKind::comments: return tree::comments_of(input.file, text);
    case tree::ProseKind::messages: return tree::messages_of(input.file, text);
    case tree::ProseKind::names: return tree::names_of(input.file, text);
  }
  return {};
}

TEST(Prose, UsesTheWordsOfTheField) {
  const auto glossary = tree::parse_glossary(tree::read_text(tree::root() / "tests/tree/glossary.txt"));
  for (const ProseInput& input : prose_inputs()) {
    for (const tree::Passage& passage : passages_of(input)) {
      for (const std::string& fault : tree::glossary_faults(passage, input.kind, glossary)) ADD_FAILURE() << fault;
    }
  }
}

TEST(Prose, HasShortSentencesAndCells) {
  for (const ProseInput& input : prose_inputs()) {
    for (const tree::Passage& passage : passages_of(input)) {
      for (const std::string& sentence : tree::sentences_of(passage.text)) {
        EXPECT_LE(tree::num_words(sentence), longest_sentence)
            << passage.file << ":" << passage.line << ": a sentence of more words:\n  " << sentence;
      }
      EXPECT_TRUE(!passage.is_cell || tree::num_words(passage.text) <= longest_cell)
          << passage.file << ":" << passage.line << ": a cell of more than " << longest_cell << " words:\n  "
          << passage.text;
    }
  }
}

TEST(Prose, IsWrapped) {
  for (const ProseInput& input : prose_inputs()) {
    if (input.kind != tree::ProseKind::docs) continue;
    const std::string text = tree::read_text(tree::root() / input.file);
    if (is_generated(text)) continue;
    for (const tree::Passage& line : tree::long_lines(input.file, text, longest_line))
      ADD_FAILURE() << line.file << ":" << line.line << ": more than " << longest_line << " characters:\n  "
                    << line.text;
  }
}

TEST(Prose, IsShortAltogether) {
  std::ptrdiff_t sum = 0;
  std::vector<std::string> pages = tree::files_below("docs", {".md"});
  pages.emplace_back("README.md");
  for (const std::string& page : pages) {
    std::istringstream words(tree::read_text(tree::root() / page));
    sum += std::distance(std::istream_iterator<std::string>(words), {});
  }
  EXPECT_LE(sum, most_words) << "words of docs/ and README.md";
}

/// What a command prints; empty where it fails.
std::string printed_by(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) text += buffer.data();
  return text;
}

TEST(Prose, CommitSubjectsAreImperativeAndShort) {
  const std::string git = "git -C '" + tree::root().string() + "' ", first = last_free_commit;
  if (printed_by(git + "merge-base --is-ancestor " + first + " HEAD && echo yes") != "yes\n")
    GTEST_SKIP() << "there is no history since " << first;
  for (const std::string& subject : tree::lines_of(printed_by(git + "log --no-merges --format=%s " + first + "..HEAD")))
    EXPECT_EQ(tree::subject_fault(subject), "") << subject;
}

}  // namespace
}  // namespace echelon
