// Filters of text, integers and floats.
#include "base/text/utf8.h"
#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace echelon::jinja {
namespace {

/// Of what separates the words of Jinja's title: blanks, hyphens and opening brackets.
std::size_t separator_at(std::string_view text) {
  return std::string_view("-({[<").find(text.front()) != std::string_view::npos ? 1 : blank_at(text, false);
}

Text titled(const Text& text, Budget& budget) {
  constexpr std::int64_t bytes_of_a_step = 16;
  budget.step(std::ssize(text.bytes) / bytes_of_a_step);
  Text result;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::string_view rest = std::string_view(text.bytes).substr(at);
    if (const std::size_t size = separator_at(rest); size > 0) {
      result.append(text.part(at, size));
      at += size;
      continue;
    }
    std::size_t end = 0;
    while (end < rest.size() && separator_at(rest.substr(end)) == 0) ++end;
    const std::size_t first = std::max<std::size_t>(utf8_character_length(rest), 1);
    result.append(cased(text.part(at, first), LetterCase::upper, budget));
    result.append(cased(text.part(at + first, end - first), LetterCase::lower, budget));
    at += end;
  }
  return result;
}

Text indented(const Values& arguments, Budget& budget) {
  const Value width = argument(arguments, 1, std::int64_t{4});
  require(width.text() || (width.is_whole() && width.whole() <= 1000), "indent takes a width of at most 1000");
  const Text by = width.text()
                      ? *width.text()
                      : Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width.whole(), 0)), ' '));
  require(!is_markup(width) || is_markup(arguments[0]), "indent by what is escaped is not supported");
  const bool first = argument(arguments, 2).is_true(), blank = argument(arguments, 3).is_true();
  Text text = text_of(arguments[0], budget);
  text.append(Text("\n"));
  Text result;
  bool is_first = true;
  for (const Value& line : lines_of(text, budget)) {
    if (!is_first) budget.append(result, Text("\n"));
    if (is_first ? first : blank || !line.text()->bytes.empty()) budget.append(result, by);
    budget.append(result, *line.text());
    is_first = false;
  }
  return result;
}

Value number(const Values& arguments, bool whole) {
  const Value& of = arguments[0];
  const Value otherwise = argument(arguments, 1, whole ? Value(std::int64_t{0}) : Value(0.0));
  if (of.is_whole()) return whole ? Value(of.whole()) : Value(of.real());
  if (of.is<double>()) {
    require(!whole || std::abs(of.real()) < 9e18, "{} is not in 64 bits", of.real());
    return whole ? Value(static_cast<std::int64_t>(of.real())) : of;
  }
  if (!of.text()) return otherwise;
  const std::string digits = strip({of}, true, true).bytes;
  const char* first = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const char* last = digits.data() + digits.size();
  std::int64_t result = 0;
  double real = 0;
  if (const auto [end, error] = std::from_chars(first, last, result); whole && error == std::errc() && end == last)
    return result;
  const auto [end, error] = std::from_chars(first, last, real);
  if (error != std::errc() || end != last || !std::isfinite(real)) return otherwise;
  return number({Value(real)}, whole);
}

/// Python rounds halves of floats to even.
Value rounded(const Values& arguments) {
  require(arguments[0].is_number(), "round does not take {}", arguments[0].kind());
  const Value precision = argument(arguments, 1, std::int64_t{0}), method = argument(arguments, 2, Text("common"));
  require(precision.is_whole() && precision.whole() >= 0 && precision.whole() <= 15, "round takes 0 to 15 digits");
  const double x = arguments[0].real(), scale = std::pow(10.0, static_cast<double>(precision.whole()));
  require(method.text() &&
              (method.text()->bytes == "common" || method.text()->bytes == "ceil" || method.text()->bytes == "floor"),
          "round takes the methods 'common', 'ceil' and 'floor'");
  if (method.text()->bytes == "ceil") return std::ceil(x * scale) / scale;
  if (method.text()->bytes == "floor") return std::floor(x * scale) / scale;
  const Text digits(fmt::format("{:.{}f}", x, precision.whole()));
  if (arguments[0].is_whole()) return arguments[0].whole();
  return number({digits}, false);
}

}  // namespace

Text marked(Text text, bool is_markup) {
  text.is_markup = is_markup;
  return text;
}

Text escaped(const Text& text, Budget& budget) {
  if (text.is_markup) return text;
  Text result;
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    static constexpr std::string_view from = "&<>'\"";
    static constexpr std::string_view to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const std::size_t found = from.find(text.bytes[i]);
    budget.append(result, found == from.npos ? text.part(i, 1) : Text(to[found], text.origins[i]));
  }
  return marked(std::move(result), true);
}

std::optional<Value> text_filtered(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  const auto kept = [&](Text text) { return marked(std::move(text), is_markup(of)); };
  if (name == "trim") {
    Values values = arguments;
    values[0] = text_of(of, budget);
    return kept(strip(values, true, true));
  }
  if (name == "string") return text_of(of, budget);
  if (name == "upper") return kept(cased(text_of(of, budget), LetterCase::upper, budget));
  if (name == "lower") return kept(cased(text_of(of, budget), LetterCase::lower, budget));
  if (name == "capitalize") return kept(cased(text_of(of, budget), LetterCase::capitalized, budget));
  if (name == "title") return titled(text_of(of, budget), budget);
  if (name == "indent") return kept(indented(arguments, budget));
  if (name == "escape" || name == "e") return escaped(text_of(of, budget), budget);
  if (name == "safe") return marked(text_of(of, budget), true);
  if (name == "int" && arguments.size() <= 2) return number(arguments, true);
  if (name == "float" && arguments.size() <= 2) return number(arguments, false);
  if (name == "round") return rounded(arguments);
  if (name == "abs" && of.is_number())
    return of.real() < 0 ? binary("-", std::int64_t{0}, of, budget) : of.is<bool>() ? Value(of.whole()) : of;
  if (name != "replace") return std::nullopt;
  Values values = arguments;
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 3); ++i) values[i] = text_of(values[i], budget);
  return replaced(values, budget);
}

Text replaced(const Values& arguments, Budget& budget) {
  const Text &text = text_at(arguments, 0), &from = text_at(arguments, 1), &to = text_at(arguments, 2);
  const Value count = argument(arguments, 3, std::int64_t{-1});
  require(!from.bytes.empty(), "replace needs a string to search for");
  std::int64_t most = count.is_whole() ? std::max<std::int64_t>(count.whole(), -1) : -1;
  charge_search(text, from, budget);
  Text result;
  std::size_t at = 0;
  for (std::size_t found = 0; most-- != 0 && (found = text.bytes.find(from.bytes, at)) != std::string::npos;
       at = found + from.bytes.size()) {
    budget.step();
    budget.append(result, text.part(at, found - at));
    budget.append(result, to);
  }
  budget.append(result, text.part(at));
  return result;
}

}  // namespace echelon::jinja
