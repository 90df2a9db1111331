// Prose for the tests of the tree: the text of Markdown pages, of comments, messages and names of C++ sources, and the
// glossary that it is checked against.
#pragma once

#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::tree {

/// A heading, a paragraph, a list item, a table cell, a comment, a message or a name. Code in it is replaced by "_".
struct Passage {
  std::string file;
  int line = 0;  // of its start, from 1
  std::string text;
  bool is_cell = false;  // of a table
};

enum class ProseKind { docs, comments, messages, names };

/// Without fenced and indented code, HTML comments and link targets.
[[nodiscard]] std::vector<Passage> markdown_passages(const std::string& file, const std::string& markdown);
/// Adjacent // comments are one text, which is read as Markdown. Lines indented by four are drawings and formulas.
[[nodiscard]] std::vector<Passage> comments_of(const std::string& file, const std::string& source);
/// String literals of at least two words; adjacent ones are joined.
[[nodiscard]] std::vector<Passage> messages_of(const std::string& file, const std::string& source);
/// Each identifier once, as lower-case words: StageShape and stage_shape are "stage shape".
[[nodiscard]] std::vector<Passage> names_of(const std::string& file, const std::string& source);

/// A line of Markdown that is longer than `limit` characters although it could be wrapped.
[[nodiscard]] std::vector<Passage> long_lines(const std::string& file, const std::string& markdown, int limit);

[[nodiscard]] std::vector<std::string> sentences_of(const std::string& text);
[[nodiscard]] int num_words(const std::string& text);

struct GlossaryEntry {
  std::string pattern;
  std::regex word;
  std::string instead;
  std::vector<std::regex> permitted;  // contexts that contain the word
  std::set<ProseKind> kinds;
};

/// Throws std::invalid_argument with the line for what is not an entry. The format is explained in glossary.txt.
[[nodiscard]] std::vector<GlossaryEntry> parse_glossary(const std::string& text);

/// One message for each word of the passage that an entry does not permit.
[[nodiscard]] std::vector<std::string> glossary_faults(const Passage& passage, ProseKind kind,
                                                       const std::vector<GlossaryEntry>& glossary);

/// What is wrong with the subject of a commit; empty: nothing.
[[nodiscard]] std::string subject_fault(const std::string& subject);

/// Characters, not bytes, of UTF-8.
[[nodiscard]] int num_characters(std::string_view text);

}  // namespace echelon::tree
