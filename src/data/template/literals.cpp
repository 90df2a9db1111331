// The literals of templates: integers, floats and strings.
#include "data/template/lexer.h"
#include "data/tokenizer/unicode/code_points.h"

#include <algorithm>
#include <charconv>

namespace echelon::jinja {
namespace {

/// A code point of so many digits; one that does not exist is an Error, as in Python.
std::size_t append_code(std::string_view rest, std::size_t from, std::size_t size, int base, std::string& text,
                        Place place) {
  std::uint32_t code = 0;
  const char *first = rest.data() + from, *last = first + std::min(size, rest.size() - from);
  const auto [end, error] = std::from_chars(first, last, code, base);
  const bool is_short = base == 16 && end != first + size;
  if (error != std::errc() || is_short || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    refuse(place, "a string has an escape that is no code point");
  append_utf8(code, text);
  return from + static_cast<std::size_t>(end - first);
}

}  // namespace

std::size_t end_of_number(std::string_view source, std::size_t start, bool& is_real) {
  const auto digits_from = [&](std::size_t from) {
    return std::min(source.find_first_not_of("0123456789_", from), source.size());
  };
  const auto at = [&](std::size_t i) { return i < source.size() ? source[i] : '\0'; };
  const auto is_digit = [&](std::size_t i) { return at(i) >= '0' && at(i) <= '9'; };
  std::size_t end = digits_from(start);
  const bool has_fraction = at(end) == '.' && is_digit(end + 1);
  if (has_fraction) end = digits_from(end + 1);
  const std::size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
  const bool has_exponent = (at(end) == 'e' || at(end) == 'E') && is_digit(end + 1 + sign);
  if (has_exponent) end = digits_from(end + 1 + sign);
  is_real = has_fraction || has_exponent;
  return end;
}

std::size_t append_escape(std::string_view rest, std::string& text, Place place) {
  static constexpr std::string_view names = "ntr\\'\"abfv", values = "\n\t\r\\'\"\a\b\f\v";
  const char c = rest.front();
  if (const std::size_t found = names.find(c); found != std::string_view::npos) {
    text += values[found];
  } else if (c == 'x' || c == 'u' || c == 'U') {
    return append_code(rest, 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, text, place);
  } else if (c >= '0' && c <= '7') {
    return append_code(rest, 0, 3, 8, text, place);
  } else if (c != '\n') {  // any other stays as it is; a backslash before the end of a line joins lines
    text += '\\';
    return 0;
  }
  return 1;
}

}  // namespace echelon::jinja
