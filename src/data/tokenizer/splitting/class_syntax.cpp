#include "data/tokenizer/splitting/class_syntax.h"

#include "base/text/utf8.h"
#include "data/tokenizer/unicode/character_tables.h"

#include <charconv>
#include <utility>

namespace echelon {
namespace {

using Result = std::optional<CodePointSet>;

CodePointSet single(char32_t code) { return CodePointSet({{code, code + 1}}); }

Result from_hexadecimal(std::string_view digits) {
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  const bool is_whole = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  return is_whole && code < num_code_points ? Result(single(code)) : std::nullopt;
}

/// {name} or {digits} at pattern[at].
std::optional<std::string_view> in_braces(std::string_view pattern, std::size_t& at) {
  if (at >= pattern.size() || pattern[at] != '{') return std::nullopt;
  const std::size_t end = pattern.find('}', at);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = pattern.substr(at + 1, end - at - 1);
  at = end + 1;
  return inside;
}

Result read_property(std::string_view pattern, std::size_t& at, bool is_negated) {
  auto name = in_braces(pattern, at);
  if (!name) return std::nullopt;
  if (name->starts_with('^')) {
    name->remove_prefix(1);
    is_negated = !is_negated;
  }
  const Result set = character_property(*name);
  return set && is_negated ? set->complement() : set;
}

Result read_code(std::string_view pattern, std::size_t& at, std::size_t num_digits) {
  if (const auto digits = in_braces(pattern, at)) return from_hexadecimal(*digits);
  const std::string_view digits = pattern.substr(at, num_digits);
  at += digits.size();
  return digits.size() == num_digits ? from_hexadecimal(digits) : std::nullopt;
}

Result named_set(std::string_view name, bool is_negated) {
  const CodePointSet& set = character_tables().sets.find(name)->second;
  return is_negated ? set.complement() : set;
}

/// What follows a backslash.
Result read_escape(std::string_view pattern, std::size_t& at) {
  if (at == pattern.size()) return std::nullopt;
  const char letter = pattern[at++];
  switch (letter) {
    case 's':
    case 'S': return named_set("space", letter == 'S');
    case 'w':
    case 'W': return named_set("regex_word", letter == 'W');
    case 'd': return character_property("Nd");
    case 'D': return character_property("Nd")->complement();
    case 'p':
    case 'P': return read_property(pattern, at, letter == 'P');
    case 'x': return read_code(pattern, at, 2);
    case 'u': return read_code(pattern, at, 4);
    case 'n': return single('\n');
    case 'r': return single('\r');
    case 't': return single('\t');
    case 'f': return single('\f');
    case 'v': return single('\v');
    default: break;
  }
  const auto byte = static_cast<std::uint8_t>(letter);
  const bool is_mark =
      byte < 0x80 && !(letter >= '0' && letter <= '9') && !((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z');
  return is_mark ? Result(single(byte)) : std::nullopt;
}

/// One character or escape.
Result read_item(std::string_view pattern, std::size_t& at) {
  if (pattern[at] == '\\') return read_escape(pattern, ++at);
  if (utf8_character_length(pattern.substr(at)) == 0) return std::nullopt;
  return single(next_code_point(pattern, at));
}

std::optional<char32_t> only_member(const CodePointSet& set) {
  const auto& ranges = set.ranges();
  if (ranges.size() != 1 || ranges[0].end != ranges[0].first + 1) return std::nullopt;
  return ranges[0].first;
}

/// The inside of [...]. Nested classes and intersections are not supported.
Result read_members(std::string_view pattern, std::size_t& at) {
  CodePointSet members;
  bool is_empty = true;
  while (at < pattern.size() && (pattern[at] != ']' || is_empty)) {
    if (pattern[at] == '[' || pattern.substr(at).starts_with("&&")) return std::nullopt;
    Result item = read_item(pattern, at);
    if (!item) return std::nullopt;
    const bool is_range = at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']';
    if (is_range) {
      ++at;
      if (pattern[at] == '[') return std::nullopt;
      const Result last = read_item(pattern, at);
      const auto from = only_member(*item), to = last ? only_member(*last) : std::nullopt;
      if (!from || !to || *from > *to) return std::nullopt;
      item = CodePointSet({{*from, *to + 1}});
    }
    members = members.united(*item);
    is_empty = false;
  }
  if (at >= pattern.size()) return std::nullopt;
  ++at;
  return members;
}

}  // namespace

std::optional<CodePointSet> read_class(std::string_view pattern, std::size_t& at) {
  if (at >= pattern.size()) return std::nullopt;
  if (pattern.substr(at).starts_with("\\w") || pattern.substr(at).starts_with("\\W")) {
    // Oniguruma counts these six as of words here, though not in [\w].
    static const CodePointSet latin1({{0xb2, 0xb4}, {0xb9, 0xba}, {0xbc, 0xbf}});
    const CodePointSet word = named_set("regex_word", false)->united(latin1);
    at += 2;
    return pattern[at - 1] == 'W' ? word.complement() : word;
  }
  std::size_t end = at;
  Result set;
  if (pattern[at] == '[') {
    ++end;
    const bool is_negated = end < pattern.size() && pattern[end] == '^';
    end += is_negated ? 1 : 0;
    set = read_members(pattern, end);
    if (set && is_negated) set = set->complement();
  } else if (std::string_view("()|?*+{}.^$").find(pattern[at]) == std::string_view::npos) {
    set = read_item(pattern, end);
  }
  if (set) at = end;
  return set;
}

std::optional<CodePointSet> without_case(const CodePointSet& set) {
  std::vector<CodePointRange> ranges;
  for (const CodePointRange& range : set.ranges()) {
    if (range.end > 0x80) return std::nullopt;
    for (char32_t code = range.first; code < range.end; ++code) {
      ranges.push_back({code, code + 1});
      const char32_t lower = code | 0x20;
      if (lower < 'a' || lower > 'z') continue;
      ranges.push_back({lower, lower + 1});
      ranges.push_back({lower - 0x20, lower - 0x1f});
      if (lower == 's') ranges.push_back({0x17f, 0x180});    // the long s
      if (lower == 'k') ranges.push_back({0x212a, 0x212b});  // the sign of Kelvin
    }
  }
  return CodePointSet(std::move(ranges));
}

}  // namespace echelon
