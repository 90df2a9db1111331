// What `tokenizers` and Python know about each code point: src/data/tokenizer/unicode/tables.txt, which
// scripts/unicode_tables makes and the build embeds in the binary.
#pragma once

#include "data/tokenizer/unicode/code_points.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace echelon {

struct CharacterTables {
  using Sets = std::map<std::string, CodePointSet, std::less<>>;
  using Mapping = std::unordered_map<char32_t, std::u32string>;

  Sets categories;  // Lu, Ll, ...
  Sets scripts;     // Han, Latin, ...
  // word: \w of Rust's regex; regex_word: \w of Oniguruma; space: White_Space; numeric: N; punctuation: that of the
  // Punctuation step. Methods of Python's str have their names, and ignores_case is what a final sigma does not see.
  // Each is of its library's version of Unicode.
  Sets sets;
  std::unordered_map<char32_t, std::uint8_t> combining;  // rank of the combining class, for those that are not 0
  CodePointSet composes;                                 // decompositions that form C takes back
  Mapping canonical, compatibility;                      // whole decompositions; Hangul's are computed
  Mapping lower;
  Mapping upper, title, str_lower;  // Python's: title and str_lower where they differ from upper and lower
};

/// Parsed at the first call. Thread-safe.
[[nodiscard]] const CharacterTables& character_tables();

/// The set that a regular expression calls \p{name}: a category (Lu, L), or a script; none if it is not known.
[[nodiscard]] std::optional<CodePointSet> character_property(std::string_view name);

/// The embedded file.
[[nodiscard]] std::string_view character_tables_text();

}  // namespace echelon
