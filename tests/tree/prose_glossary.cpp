#include "tree/prose.h"
#include "tree/tree.h"

#include <fmt/format.h>

#include <cctype>
#include <stdexcept>

namespace echelon::tree {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::regex whole_words(const std::string& pattern) { return std::regex("\\b(?:" + lower(pattern) + ")\\b"); }

bool is_permitted(const std::string& text, std::ptrdiff_t first, std::ptrdiff_t last, const GlossaryEntry& entry) {
  for (const std::regex& context : entry.permitted) {
    for (std::sregex_iterator match(text.begin(), text.end(), context), end; match != end; ++match) {
      if (match->position() <= first && last <= match->position() + match->length()) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<GlossaryEntry> parse_glossary(const std::string& text) {
  static const std::regex field(R"(  (write|permit|in): (.+))");
  std::vector<GlossaryEntry> entries;
  for (const std::string& line : lines_of(text)) {
    if (line.empty() || line.starts_with("#")) continue;
    std::smatch match;
    if (!line.starts_with(" ")) {
      entries.push_back({.pattern = line,
                         .word = whole_words(line),
                         .instead = "",
                         .permitted = {},
                         .kinds = {ProseKind::docs, ProseKind::comments, ProseKind::messages}});
    } else if (entries.empty() || !std::regex_match(line, match, field)) {
      throw std::invalid_argument("not a line of a glossary: " + line);
    } else if (match[1] == "write") {
      entries.back().instead = match[2];
    } else if (match[1] == "permit") {
      entries.back().permitted.push_back(whole_words(match[2]));
    } else if (match[2] == "names too") {
      entries.back().kinds.insert(ProseKind::names);
    } else {
      throw std::invalid_argument("not a line of a glossary: " + line);
    }
  }
  for (const GlossaryEntry& entry : entries) {
    if (entry.instead.empty()) throw std::invalid_argument("nothing to write instead of: " + entry.pattern);
  }
  return entries;
}

std::vector<std::string> glossary_faults(const Passage& passage, ProseKind kind,
                                         const std::vector<GlossaryEntry>& glossary) {
  std::vector<std::string> faults;
  const std::string text = lower(passage.text);
  for (const GlossaryEntry& entry : glossary) {
    if (!entry.kinds.contains(kind)) continue;
    for (std::sregex_iterator match(text.begin(), text.end(), entry.word), end; match != end; ++match) {
      if (is_permitted(text, match->position(), match->position() + match->length(), entry)) continue;
      faults.push_back(fmt::format("{}:{}: \"{}\": write {}\n  {}", passage.file, passage.line, match->str(),
                                   entry.instead, passage.text));
    }
  }
  return faults;
}

std::string subject_fault(const std::string& subject) {
  static const std::regex verb("[A-Z][a-z]+(-[a-z]+)*"),
      form("(?!(Bring|String|Ping|Embed|Exceed|Feed|Need|Proceed|Seed|Speed|Alias|Bias|Focus)$).*(ing|ed|[^s]s)"),
      other(
          "A|After|All|Also|An|And|As|At|Before|By|Docs?|Each|Every|For|From|How|If|In|It|More|New|No|Not|Of|On|One|"
          "Only|Or|Other|Some|That|The|Their|Then|There|These|They|This|Those|To|Two|What|When|Where|Which|Who|Why|"
          "With|Without");
  const std::string first = subject.substr(0, subject.find_first_of(" ,"));  // or of several verbs
  if (num_characters(subject) > 72) return "more than 72 characters";
  if (subject.ends_with('.')) return "a full stop at the end";
  if (!std::regex_match(first, verb) || std::regex_match(first, form) || std::regex_match(first, other))
    return "does not start with a verb in the imperative";
  return "";
}

}  // namespace echelon::tree
