// Characters, blanks and lines of text, as Python splits them.
#include "data/template/operations.h"

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

// What Python's str.strip takes, in UTF-8.
constexpr std::array<std::string_view, 29> text_blanks = {
    " ",      "\t",     "\n",     "\r",     "\f",     "\v",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
    "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

/// Negative: any number.
std::int64_t most_parts(const Values& arguments) {
  return arguments.size() > 2 ? std::max<std::int64_t>(arguments[2].whole(), -1) : -1;
}

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

}  // namespace

std::vector<Text> characters_of(const Text& text, Budget& budget) {
  std::vector<Text> characters;
  budget.grow(text.bytes.size());
  budget.step(num_characters(text, budget));  // each takes more memory than its bytes
  for (std::size_t at = 0, end = 0; at < text.bytes.size(); at = end) {
    end = at + 1;
    while (end < text.bytes.size() && !starts_character(text.bytes[end])) ++end;
    characters.push_back(text.part(at, end - at));
  }
  return characters;
}

std::int64_t num_characters(const Text& text, Budget& budget) {
  charge_read(text, budget);
  return std::ranges::count_if(text.bytes, starts_character);
}

void charge_read(const Text& text, Budget& budget) { budget.step(static_cast<std::int64_t>(text.bytes.size() / 256)); }

void charge_search(const Text& text, const Text& wanted, Budget& budget) {
  budget.step(static_cast<std::int64_t>(text.bytes.size() * (wanted.bytes.size() + 64) / 16384));
}

Text characters_between(const Text& text, std::int64_t first, std::int64_t last) {
  std::size_t at = 0;
  const auto skip = [&](std::int64_t count) {
    for (; count > 0; --count)
      while (++at < text.bytes.size() && !starts_character(text.bytes[at])) continue;
  };
  skip(first);
  const std::size_t start = at;
  skip(last - first);
  return text.part(start, at - start);
}

/// The size of the blank at one end of a text, or 0.
std::size_t blank_at(std::string_view text, bool end) {
  for (const std::string_view blank : text_blanks)
    if (end ? text.ends_with(blank) : text.starts_with(blank)) return blank.size();
  return 0;
}

/// At the first `most` places, or at all if it is negative.
Value split(const Values& arguments, Budget& budget) {
  const Text& text = text_at(arguments, 0);
  std::int64_t most = most_parts(arguments);
  budget.grow(text.bytes.size());
  Values parts;
  if (arguments.size() > 1 && !arguments[1].is<None>()) {
    const std::string& by = text_at(arguments, 1).bytes;
    require(!by.empty(), "split needs a separator");
    charge_search(text, text_at(arguments, 1), budget);
    std::size_t at = 0;
    for (std::size_t found = 0; most-- != 0 && (found = text.bytes.find(by, at)) != std::string::npos;
         at = found + by.size())
      budget.step(), parts.emplace_back(text.part(at, found - at));
    parts.emplace_back(text.part(at));
    return Value::list(std::move(parts));
  }
  for (std::size_t at = 0;;) {
    while (const std::size_t size = blank_at(std::string_view(text.bytes).substr(at), false)) at += size;
    if (at == text.bytes.size()) return Value::list(std::move(parts));
    std::size_t end = at;
    while (end < text.bytes.size() && blank_at(std::string_view(text.bytes).substr(end), false) == 0) ++end;
    const bool is_last = most-- == 0;
    budget.step();
    parts.push_back(is_last ? Value(strip({text.part(at)}, false, true)) : Value(text.part(at, end - at)));
    at = is_last ? text.bytes.size() : end;
  }
}

/// From the right, as rsplit with a separator.
Value split_from_right(const Values& arguments, Budget& budget) {
  const Text& text = text_at(arguments, 0);
  const std::string& by = text_at(arguments, 1).bytes;
  require(!by.empty(), "rsplit needs a separator");
  charge_search(text, text_at(arguments, 1), budget);
  std::int64_t most = most_parts(arguments);
  budget.grow(text.bytes.size());
  Values parts;
  std::size_t end = text.bytes.size();
  while (most-- != 0 && end >= by.size()) {
    const std::size_t found = text.bytes.rfind(by, end - by.size());
    if (found == std::string::npos) break;
    budget.step();
    parts.emplace_back(text.part(found + by.size(), end - found - by.size()));
    end = found;
  }
  parts.emplace_back(text.part(0, end));
  std::ranges::reverse(parts);
  return Value::list(std::move(parts));
}

Values lines_of(const Text& text, Budget& budget) {
  static constexpr std::array<std::string_view, 11> ends = {"\r\n", "\n",   "\r",     "\v",     "\f",    "\x1c",
                                                            "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"};
  budget.grow(text.bytes.size());
  Values lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::string_view rest = std::string_view(text.bytes).substr(at);
    const auto end = std::ranges::find_if(ends, [&](std::string_view e) { return rest.starts_with(e); });
    if (end == ends.end()) {
      ++at;
      continue;
    }
    budget.step();
    lines.emplace_back(text.part(start, at - start));
    start = at += end->size();
  }
  if (start < text.bytes.size()) lines.emplace_back(text.part(start));
  return lines;
}

}  // namespace echelon::jinja
