#include "tree/prose.h"
#include "tree/tree.h"

namespace echelon::tree {
namespace {

/// Which lines of a page are text: no fences, no indented code, no HTML comments.
class MarkdownLines {
 public:
  bool is_text(const std::string& line) {
    if (line.starts_with("```")) {
      is_fenced_ = !is_fenced_;
      return false;
    }
    if (is_fenced_) return false;
    const bool is_blank = line.find_first_not_of(' ') == std::string::npos;
    const bool is_indented = line.starts_with("    ") && !is_blank;
    is_code_ = is_indented && (was_blank_ || is_code_);
    was_blank_ = is_blank;
    return !is_code_ && !line.starts_with("<!--");
  }

 private:
  bool is_fenced_ = false, is_code_ = false, was_blank_ = true;
};

std::string without_markup(std::string text) {
  static const std::regex code("`[^`]*`"), link(R"(!?\[([^\]]*)\]\([^)]*\))"), address(R"(<?https?://\S+)"),
      emphasis(R"(\*+)"), comment("<!--.*?-->");
  text = std::regex_replace(text, comment, "");
  text = std::regex_replace(text, code, "_");
  text = std::regex_replace(text, link, "$1");
  text = std::regex_replace(text, address, "_");
  return std::regex_replace(text, emphasis, "");
}

void add_cells(std::vector<Passage>& passages, const std::string& file, int line, const std::string& row) {
  static const std::regex border(R"([^\\]\||^\|)"), rule(R"([\s:-]*)");
  for (std::sregex_token_iterator cell(row.begin(), row.end(), border, -1), end; cell != end; ++cell) {
    if (!std::regex_match(cell->str(), rule)) passages.push_back({file, line, without_markup(cell->str()), true});
  }
}

}  // namespace

std::vector<Passage> markdown_passages(const std::string& file, const std::string& markdown) {
  static const std::regex item(R"(^\s*([*+-]|\d+\.)\s+)"), heading("^#+ ");
  std::vector<Passage> passages;
  MarkdownLines lines;
  bool is_open = false;  // the last passage continues in the next line
  int number = 0;
  for (const std::string& line : lines_of(markdown)) {
    ++number;
    const std::size_t first = line.find_first_not_of(" >");
    if (!lines.is_text(line) || first == std::string::npos) {
      is_open = false;
      continue;
    }
    if (line[first] == '|') {
      add_cells(passages, file, number, line.substr(first));
      is_open = false;
      continue;
    }
    const bool is_heading = std::regex_search(line, heading), is_item = std::regex_search(line, item);
    const std::string text = std::regex_replace(std::regex_replace(line, heading, ""), item, "");
    if (!is_open || is_heading || is_item)
      passages.push_back({file, number, text});
    else
      passages.back().text += " " + text;
    is_open = !is_heading;
  }
  for (Passage& passage : passages) {
    if (!passage.is_cell) passage.text = without_markup(passage.text);
  }
  return passages;
}

std::vector<Passage> long_lines(const std::string& file, const std::string& markdown, int limit) {
  static const std::regex target(R"(\]\([^)]*\))");
  std::vector<Passage> found;
  MarkdownLines lines;
  int number = 0;
  for (const std::string& line : lines_of(markdown)) {
    ++number;
    if (!lines.is_text(line) || line.starts_with("|") || line.find("://") != std::string::npos) continue;
    const bool is_one_word = line.find(' ', line.find_first_not_of(" *-")) == std::string::npos;
    if (num_characters(std::regex_replace(line, target, "]()")) > limit && !is_one_word)
      found.push_back({file, number, line});
  }
  return found;
}

std::vector<std::string> sentences_of(const std::string& text) {
  static const std::regex last(R"(.*[.?!][)\]"']*)"), abbreviation(R"(\(?(e\.g|i\.e|al|fig|vs|cf|etc|no|approx)\.)"),
      start(R"([(\["']*([A-Z0-9_]).*)");
  std::vector<std::string> sentences;
  std::istringstream stream(text);
  std::string sentence, before;
  for (std::string word; stream >> word; before = word) {
    const bool is_end = std::regex_match(before, last) && !std::regex_match(before, abbreviation);
    if (is_end && std::regex_match(word, start)) {
      sentences.push_back(sentence);
      sentence.clear();
    }
    sentence += (sentence.empty() ? "" : " ") + word;
  }
  if (!sentence.empty()) sentences.push_back(sentence);
  return sentences;
}

int num_words(const std::string& text) {
  std::istringstream stream(text);
  return static_cast<int>(std::count_if(std::istream_iterator<std::string>(stream), {}, [](const std::string& word) {
    return std::ranges::any_of(word, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c > 127; });
  }));
}

int num_characters(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace echelon::tree
