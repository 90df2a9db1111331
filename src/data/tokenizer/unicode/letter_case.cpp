#include "data/tokenizer/unicode/letter_case.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <string>
#include <vector>

namespace echelon {
namespace {

constexpr char32_t capital_sigma = 0x3a3, sigma = 0x3c3, final_sigma = 0x3c2;
constexpr char32_t no_character = num_code_points;

const CodePointSet& set_named(std::string_view name) { return character_tables().sets.find(name)->second; }

struct Character {
  char32_t code = no_character;
  std::size_t size = 1;
};

std::vector<Character> characters_in(std::string_view text) {
  std::vector<Character> characters;
  for (std::size_t at = 0; at < text.size(); at += characters.back().size) {
    Character& next = characters.emplace_back();
    const std::size_t size = utf8_character_length(text.substr(at));
    if (size == 0) continue;
    std::size_t end = at;
    next = {next_code_point(text, end), size};
  }
  return characters;
}

class CasedText {
 public:
  explicit CasedText(std::string_view text) : text_(text), characters_(characters_in(text)) {}

  void visit(LetterCase letter_case, const std::function<void(std::size_t, std::string_view)>& visit) {
    std::size_t at = 0;
    bool follows_cased = false;
    for (std::size_t i = 0; i < characters_.size(); ++i) {
      const auto [code, size] = characters_[i];
      cased_.clear();
      if (code == no_character)
        cased_ = text_.substr(at, size);
      else
        append(i, of_character(letter_case, code, i == 0, follows_cased));
      visit(size, cased_);
      follows_cased = is_cased(code);
      at += size;
    }
  }

 private:
  [[nodiscard]] bool is_cased(char32_t code) const {
    return upper_.contains(code) || lower_.contains(code) || title_.contains(code);
  }

  /// upper, lower, titled, or swapped for a character that stays.
  [[nodiscard]] LetterCase of_character(LetterCase whole, char32_t code, bool is_first, bool follows_cased) const {
    switch (whole) {
      case LetterCase::upper:
      case LetterCase::lower: return whole;
      case LetterCase::titled: return follows_cased ? LetterCase::lower : LetterCase::titled;
      case LetterCase::capitalized: return is_first ? LetterCase::titled : LetterCase::lower;
      case LetterCase::swapped: break;
    }
    if (upper_.contains(code)) return LetterCase::lower;
    return lower_.contains(code) ? LetterCase::upper : LetterCase::swapped;
  }

  void append(std::size_t i, LetterCase letter_case) {
    const CharacterTables& tables = character_tables();
    const char32_t code = characters_[i].code;
    if (letter_case == LetterCase::lower && code == capital_sigma) {
      append_utf8(ends_word(i) ? final_sigma : sigma, cased_);
      return;
    }
    const bool is_lower = letter_case == LetterCase::lower;
    const auto& own = is_lower ? tables.str_lower : tables.title;  // what differs from the other one
    const auto& shared = is_lower ? tables.lower : tables.upper;
    const std::u32string* becomes = nullptr;
    const auto look = [&](const CharacterTables::Mapping& mapping) {
      const auto found = mapping.find(code);
      if (becomes == nullptr && found != mapping.end()) becomes = &found->second;
    };
    if (is_lower || letter_case == LetterCase::titled) look(own);
    if (letter_case != LetterCase::swapped) look(shared);
    if (becomes == nullptr) return append_utf8(code, cased_);
    for (const char32_t part : *becomes) append_utf8(part, cased_);
  }

  /// A cased letter comes before it, and none after it, but for those that ignore case.
  [[nodiscard]] bool ends_word(std::size_t i) const {
    std::size_t before = i, after = i + 1;
    while (before > 0 && ignoring_.contains(characters_[before - 1].code)) --before;
    while (after < characters_.size() && ignoring_.contains(characters_[after].code)) ++after;
    return before > 0 && is_cased(characters_[before - 1].code) &&
           (after == characters_.size() || !is_cased(characters_[after].code));
  }

  std::string_view text_;
  std::vector<Character> characters_;
  std::string cased_;
  const CodePointSet &upper_ = set_named("isupper"), &lower_ = set_named("islower"), &title_ = set_named("istitle"),
                     &ignoring_ = set_named("ignores_case");
};

}  // namespace

void for_each_cased(std::string_view text, LetterCase letter_case,
                    const std::function<void(std::size_t size, std::string_view cased)>& visit) {
  CasedText(text).visit(letter_case, visit);
}

bool is_all(std::string_view text, std::string_view method) {
  const bool is_of_case = method == "isupper" || method == "islower";
  const CodePointSet& wanted = set_named(method);
  const CodePointSet &upper = set_named("isupper"), &lower = set_named("islower"), &title = set_named("istitle");
  bool has_some = false;
  for (const auto& [code, size] : characters_in(text)) {
    const bool is_wanted = wanted.contains(code);
    has_some = has_some || is_wanted;
    const bool has_other_case = upper.contains(code) || lower.contains(code) || title.contains(code);
    if (!is_wanted && (!is_of_case || has_other_case)) return false;
  }
  return has_some;
}

}  // namespace echelon
