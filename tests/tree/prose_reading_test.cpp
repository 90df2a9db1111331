// How prose is read: what is text and what is code, where sentences end, what an entry of the glossary permits.
#include "tree/prose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace echelon::tree {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> texts_of(const std::vector<Passage>& passages) {
  std::vector<std::string> texts;
  for (const Passage& passage : passages) texts.push_back(passage.text);
  return texts;
}

TEST(ProseReading, MarkdownWithoutCode) {
  const std::string page =
      "# A title\n\nText with `code` and [a link](to/a.md),\nwrapped *twice*.\n\n```sh\nbeside\n```\n\n"
      "    beside\n    beside\n\n<!-- axes -->\n* one\n  item\n* two\n\n| a `b` | c |\n|---|---|\n| d \\| e | f |\n";
  const std::vector<Passage> passages = markdown_passages("page.md", page);
  EXPECT_THAT(texts_of(passages), ElementsAre("A title", "Text with _ and a link, wrapped twice.", "one   item", "two",
                                              " a _", " c", " d \\| e", " f"));
  EXPECT_EQ(passages[1].line, 3);
  EXPECT_EQ(passages[2].line, 14);
  EXPECT_TRUE(passages.back().is_cell);
}

TEST(ProseReading, CommentsMessagesAndNames) {
  const std::string source =
      "#include \"not a message\"\n// The first\n// comment of run_config.\nint a_bedStead = 1'000;  // The second.\n"
      "const char* s = \"no /* comment\"\n    \" and {} joined\\n\";\nchar c = '\"';\n/// Third \"comment\".\n"
      "//     diagram\nauto r = R\"x(raw \"text\" here)x\";\n/* block */\n";
  EXPECT_THAT(texts_of(comments_of("a.cpp", source)),
              ElementsAre("The first comment of _.", "The second.", "Third \"comment\".", "block "));
  EXPECT_THAT(texts_of(messages_of("a.cpp", source)),
              ElementsAre("no /* comment and  _  joined _ ", "raw \"text\" here"));
  EXPECT_EQ(messages_of("a.cpp", source).back().line, 10);
  EXPECT_THAT(texts_of(names_of("a.cpp", source)),
              ElementsAre("int", "a bed Stead", "const", "char", "s", "c", "auto", "r"));
}

TEST(ProseReading, Sentences) {
  EXPECT_THAT(sentences_of("One, e.g. this of Qi et al. 2023. Two (v1.5 of it). `x` is three: a. b"),
              ElementsAre("One, e.g. this of Qi et al. 2023.", "Two (v1.5 of it). `x` is three: a. b"));
  EXPECT_THAT(sentences_of("Is it? _ is."), ElementsAre("Is it?", "_ is."));
  EXPECT_EQ(num_words("two - words | here"), 3);
  EXPECT_EQ(num_characters("µs"), 2);
}

TEST(ProseReading, LongLines) {
  const std::string words(30, 'x');
  const std::string page = words + " " + words + "\n| " + words + " " + words + " |\n" + words + words + "\n[text](" +
                           words + ") " + words + "\nhttps://" + words + " " + words + "\n```\n" + words + " " + words +
                           "\n```\n";
  const std::vector<Passage> lines = long_lines("page.md", page, 50);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines.front().line, 1);
}

TEST(ProseReading, GlossaryKnowsPermittedContexts) {
  const auto glossary =
      parse_glossary("# comment\nstands?\n  write: is\n  permit: stands? for\nbed\n  write: slot\n  in: names too\n");
  const auto faults = [&](const std::string& text, ProseKind kind) {
    return glossary_faults({"page.md", 7, text}, kind, glossary);
  };
  EXPECT_THAT(faults("Standard: x stands for y.", ProseKind::docs), IsEmpty());
  EXPECT_THAT(faults("Stands for y, and stands there.", ProseKind::docs),
              ElementsAre("page.md:7: \"stands\": write is\n  Stands for y, and stands there."));
  EXPECT_THAT(faults("stands", ProseKind::names), IsEmpty());
  EXPECT_EQ(faults("a Bed", ProseKind::names).size(), 1U);
  EXPECT_THROW((void)parse_glossary("word\n"), std::invalid_argument);
  EXPECT_THROW((void)parse_glossary("word\n  write: x\n  wrong: y\n"), std::invalid_argument);
}

TEST(ProseReading, Subjects) {
  for (const char* good : {"Add a test", "Pass the mesh to layers", "Bring back x", "Double-check y"})
    EXPECT_EQ(subject_fault(good), "") << good;
  for (const char* bad : {"The mesh is passed", "Added a test", "Adds a test", "Adding a test", "CI: add a test",
                          "add a test", "Add a test.", "What a test is"})
    EXPECT_NE(subject_fault(bad), "") << bad;
  EXPECT_EQ(subject_fault("Add " + std::string(68, 'x')), "");
  EXPECT_NE(subject_fault("Add " + std::string(69, 'x')), "");
}

}  // namespace
}  // namespace echelon::tree
