#include "data/tokenizer/unicode/normal_forms.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace echelon {
namespace {

// Hangul syllables are composed by arithmetic (Unicode 15, section 3.12).
constexpr char32_t first_syllable = 0xac00, first_lead = 0x1100, first_vowel = 0x1161, first_trail = 0x11a7;
constexpr char32_t num_leads = 19, num_vowels = 21, num_trails = 28,
                   num_syllables = num_leads * num_vowels * num_trails;

bool is_among(char32_t code, char32_t first, char32_t count) { return code >= first && code - first < count; }

std::uint64_t pair_of(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

/// What a character may do to its neighbours, for the quick way around text that is normal already.
enum Behaviour : std::uint8_t { decomposes = 1, decomposes_compatibly = 2, stays_in_c = 4, joins_before = 8 };

class Forms {
 public:
  Forms() : behaviour_(num_code_points) {
    const CharacterTables& tables = character_tables();
    for (const auto& [code, parts] : tables.compatibility) behaviour_[code] |= decomposes_compatibly;
    for (const auto& [code, parts] : tables.canonical) {
      behaviour_[code] |= decomposes;
      if (tables.composes.contains(code)) behaviour_[code] |= stays_in_c;
    }
    for (const auto& [code, rank] : tables.combining) behaviour_[code] |= joins_before;
    for (char32_t i = 0; i < num_syllables; ++i) behaviour_[first_syllable + i] |= decomposes | stays_in_c;
    for (char32_t i = 0; i < num_vowels; ++i) behaviour_[first_vowel + i] |= joins_before;
    for (char32_t i = 1; i < num_trails; ++i) behaviour_[first_trail + i] |= joins_before;
    add_compositions(tables);
  }

  /// Whether text may be normalized up to this character without the rest.
  [[nodiscard]] bool is_inert(char32_t code, NormalForm form) const {
    const std::uint8_t behaviour = behaviour_[code];
    if (behaviour == 0) return true;
    const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    if ((behaviour & joins_before) != 0 || (is_compatible && (behaviour & decomposes_compatibly) != 0)) return false;
    if ((behaviour & decomposes) == 0) return true;
    return (form == NormalForm::nfc || form == NormalForm::nfkc) && (behaviour & stays_in_c) != 0;
  }

  void normalize(std::u32string& codes, NormalForm form) const {
    const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    std::u32string whole;
    for (const char32_t code : codes) decompose(code, is_compatible, whole);
    order(whole);
    if (form == NormalForm::nfc || form == NormalForm::nfkc) compose(whole);
    codes = std::move(whole);
  }

 private:
  [[nodiscard]] std::uint8_t rank(char32_t code) const {
    if ((behaviour_[code] & joins_before) == 0) return 0;
    const auto found = character_tables().combining.find(code);
    return found == character_tables().combining.end() ? std::uint8_t{0} : found->second;
  }

  // The last part of a decomposition joins the character that the parts before it make.
  void add_compositions(const CharacterTables& tables) {
    std::map<std::u32string, char32_t> whole;
    for (const auto& [code, parts] : tables.canonical) {
      if (tables.composes.contains(code)) whole.emplace(parts, code);
    }
    for (const auto& [parts, code] : whole) {
      const std::u32string before = parts.substr(0, parts.size() - 1);
      const auto first = whole.find(before);
      if (before.size() > 1 && first == whole.end()) continue;
      compositions_.emplace(pair_of(before.size() > 1 ? first->second : before[0], parts.back()), code);
      behaviour_[parts.back()] |= joins_before;
    }
  }

  void decompose(char32_t code, bool is_compatible, std::u32string& out) const {
    const CharacterTables& tables = character_tables();
    if (is_among(code, first_syllable, num_syllables)) {
      const char32_t index = code - first_syllable;
      out += first_lead + index / (num_vowels * num_trails);
      out += first_vowel + index / num_trails % num_vowels;
      if (index % num_trails != 0) out += first_trail + index % num_trails;
      return;
    }
    const std::uint8_t behaviour = behaviour_[code];
    if (is_compatible && (behaviour & decomposes_compatibly) != 0)
      out += tables.compatibility.at(code);
    else if ((behaviour & decomposes) != 0)
      out += tables.canonical.at(code);
    else
      out += code;
  }

  void order(std::u32string& codes) const {
    for (auto first = codes.begin(); first != codes.end();) {
      const auto marks = std::find_if(first, codes.end(), [&](char32_t code) { return rank(code) != 0; });
      first = std::find_if(marks, codes.end(), [&](char32_t code) { return rank(code) == 0; });
      std::stable_sort(marks, first, [&](char32_t a, char32_t b) { return rank(a) < rank(b); });
    }
  }

  // A character joins the last starter unless a character of its class or a higher one is between them.
  void compose(std::u32string& codes) const {
    std::size_t kept = 0, starter = codes.size();
    std::uint8_t rank_between = 0;
    for (const char32_t code : codes) {
      const std::uint8_t mine = rank(code);
      const bool is_blocked = starter + 1 < kept && rank_between >= mine;
      const char32_t joined = starter < kept && !is_blocked ? composed(codes[starter], code) : 0;
      if (joined != 0) {
        codes[starter] = joined;
        continue;
      }
      if (mine == 0) starter = kept;
      rank_between = mine;
      codes[kept++] = code;
    }
    codes.resize(kept);
  }

  [[nodiscard]] char32_t composed(char32_t first, char32_t second) const {
    if (is_among(first, first_lead, num_leads) && is_among(second, first_vowel, num_vowels))
      return first_syllable + ((first - first_lead) * num_vowels + second - first_vowel) * num_trails;
    const bool is_open = is_among(first, first_syllable, num_syllables) && (first - first_syllable) % num_trails == 0;
    if (is_open && is_among(second, first_trail + 1, num_trails - 1)) return first + second - first_trail;
    const auto found = compositions_.find(pair_of(first, second));
    return found == compositions_.end() ? 0 : found->second;
  }

  std::vector<std::uint8_t> behaviour_;
  std::unordered_map<std::uint64_t, char32_t> compositions_;
};

const Forms& forms() {
  static const Forms forms;
  return forms;
}

/// Text is normalized in sections that start with an inert character; a section of one is copied.
void append_normalized(std::string_view valid, NormalForm form, std::string& out) {
  const Forms& forms_of_all = forms();
  std::u32string codes;
  std::size_t section = 0;
  const auto close = [&](std::size_t end, bool is_copied) {
    if (is_copied) {
      out.append(valid.substr(section, end - section));
    } else {
      codes.clear();
      for (std::size_t at = section; at < end;) codes += next_code_point(valid, at);
      forms_of_all.normalize(codes, form);
      for (const char32_t code : codes) append_utf8(code, out);
    }
    section = end;
  };
  bool is_copied = true;
  std::size_t last_inert = 0;
  for (std::size_t at = 0; at < valid.size();) {
    const std::size_t here = at;
    if (forms_of_all.is_inert(next_code_point(valid, at), form)) {
      if (!is_copied) close(here, false);
      is_copied = true;
      last_inert = here;
    } else if (is_copied) {
      close(last_inert, true);
      is_copied = false;
    }
  }
  close(valid.size(), is_copied);
}

/// Calls visit(text, is_valid) for the runs of valid UTF-8 and for the bytes between them.
template <class Visit>
void for_each_run_of(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) visit(text.substr(0, valid), true);
    text.remove_prefix(valid);
    std::size_t end = 0;
    while (end < text.size() && utf8_character_length(text.substr(end)) == 0) ++end;
    if (end > 0) visit(text.substr(0, end), false);
    text.remove_prefix(end);
  }
}

}  // namespace

std::string_view to_normal_form(std::string_view text, NormalForm form, std::string& storage) {
  // Every character below U+0300, whose UTF-8 starts with 0xcc, is in form C already; below U+00A0 in the others.
  const std::uint8_t least = form == NormalForm::nfc ? 0xcc : 0xc2;
  const auto may_change = [&](char byte) { return static_cast<std::uint8_t>(byte) >= least; };
  if (std::none_of(text.begin(), text.end(), may_change)) return text;
  storage.clear();
  for_each_run_of(text, [&](std::string_view run, bool is_valid) {
    is_valid ? append_normalized(run, form, storage) : static_cast<void>(storage.append(run));
  });
  return storage;
}

std::string to_lower_case(std::string_view text) {
  std::string lower;
  for_each_run_of(text, [&](std::string_view run, bool is_valid) {
    if (!is_valid) lower += run;
    for (std::size_t at = 0; is_valid && at < run.size();) {
      const char32_t code = next_code_point(run, at);
      const auto found = character_tables().lower.find(code);
      if (found == character_tables().lower.end())
        append_utf8(code, lower);
      else
        for (const char32_t part : found->second) append_utf8(part, lower);
    }
  });
  return lower;
}

}  // namespace echelon
