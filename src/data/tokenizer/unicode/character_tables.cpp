#include "data/tokenizer/unicode/character_tables.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <utility>

namespace echelon {
namespace {

std::string_view next_word(std::string_view& text, char end) {
  const std::size_t size = std::min(text.find(end), text.size());
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  return word;
}

char32_t hexadecimal(std::string_view digits) {
  std::uint32_t value = 0;
  [[maybe_unused]] const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  assert(error == std::errc() && end == digits.data() + digits.size());
  return value;
}

/// Calls visit(range, value) for the words GAP+LENGTH=VALUE of a line.
template <class Visit>
void for_each_run(std::string_view line, char32_t& at, const Visit& visit) {
  while (!line.empty()) {
    std::string_view word = next_word(line, ' ');
    const std::size_t equals = word.find('=');
    const char32_t value = equals == std::string_view::npos ? 1 : hexadecimal(word.substr(equals + 1));
    word = word.substr(0, equals);
    const std::string_view gap = next_word(word, '+');
    const CodePointRange range{at + hexadecimal(gap), at + hexadecimal(gap) + (word.empty() ? 1 : hexadecimal(word))};
    visit(range, value);
    at = range.end;
  }
}

/// The words GAP:CODE.CODE of a line.
void read_mapping(std::string_view line, char32_t& at, CharacterTables::Mapping& mapping) {
  while (!line.empty()) {
    std::string_view word = next_word(line, ' ');
    at += hexadecimal(next_word(word, ':'));
    std::u32string& codes = mapping[at];
    while (!word.empty()) codes += hexadecimal(next_word(word, '.'));
  }
}

struct Section {
  std::string title;
  std::vector<std::string_view> lines;
};

std::vector<Section> sections_of(std::string_view text) {
  std::vector<Section> sections;
  while (!text.empty()) {
    const std::string_view line = next_word(text, '\n');
    if (line.starts_with('['))
      sections.push_back({std::string(line.substr(1, line.size() - 2)), {}});
    else if (!sections.empty())
      sections.back().lines.push_back(line);
  }
  return sections;
}

CodePointSet read_set(const Section& section) {
  std::vector<CodePointRange> ranges;
  char32_t at = 0;
  for (const std::string_view line : section.lines)
    for_each_run(line, at, [&](CodePointRange range, char32_t) { ranges.push_back(range); });
  return CodePointSet(std::move(ranges));
}

void read_categories(const Section& section, CharacterTables& tables) {
  std::vector<std::string> names;
  std::string_view title = section.title;
  (void)next_word(title, ' ');
  while (!title.empty()) names.emplace_back(next_word(title, ' '));
  std::vector<std::vector<CodePointRange>> ranges(names.size());
  std::vector<CodePointRange> assigned;
  char32_t at = 0;
  for (const std::string_view line : section.lines) {
    for_each_run(line, at, [&](CodePointRange range, char32_t value) {
      ranges[value].push_back(range);
      assigned.push_back(range);
    });
  }
  for (std::size_t i = 0; i < names.size(); ++i) tables.categories.emplace(names[i], std::move(ranges[i]));
  tables.categories["Cn"] = CodePointSet(std::move(assigned)).complement();
}

/// Null of what is no mapping.
CharacterTables::Mapping* mapping_named(std::string_view name, CharacterTables& tables) {
  if (name == "canonical") return &tables.canonical;
  if (name == "compatibility") return &tables.compatibility;
  if (name == "lower") return &tables.lower;
  if (name == "upper") return &tables.upper;
  if (name == "title") return &tables.title;
  return name == "str_lower" ? &tables.str_lower : nullptr;
}

void read_section(const Section& section, CharacterTables& tables) {
  const std::string& title = section.title;
  if (title.starts_with("category")) return read_categories(section, tables);
  if (title.starts_with("script ")) {
    tables.scripts.emplace(title.substr(7), read_set(section));
  } else if (title == "composes") {
    tables.composes = read_set(section);
  } else if (title == "combining") {
    char32_t at = 0;
    for (const std::string_view line : section.lines) {
      for_each_run(line, at, [&](CodePointRange range, char32_t rank) {
        for (char32_t code = range.first; code < range.end; ++code)
          tables.combining.emplace(code, static_cast<std::uint8_t>(rank));
      });
    }
  } else if (CharacterTables::Mapping* const mapping = mapping_named(title, tables)) {
    char32_t at = 0;
    for (const std::string_view line : section.lines) read_mapping(line, at, *mapping);
  } else {
    tables.sets.emplace(title, read_set(section));
  }
}

}  // namespace

const CharacterTables& character_tables() {
  static const CharacterTables tables = [] {
    CharacterTables read;
    for (const Section& section : sections_of(character_tables_text())) read_section(section, read);
    return read;
  }();
  return tables;
}

std::optional<CodePointSet> character_property(std::string_view name) {
  const CharacterTables& tables = character_tables();
  if (const auto script = tables.scripts.find(name); script != tables.scripts.end()) return script->second;
  std::optional<CodePointSet> result;
  for (const auto& [category, set] : tables.categories) {
    const bool is_meant = category == name || (name.size() == 1 && category[0] == name[0]);
    if (is_meant) result = result ? result->united(set) : set;
  }
  return result;
}

}  // namespace echelon
