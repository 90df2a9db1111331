// Methods of strings, mappings and lists, as Python's.
#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace echelon::jinja {
namespace {

Text stripped(const Text& text, std::string_view of, bool left, bool right) {
  const std::size_t first = left ? text.bytes.find_first_not_of(of) : 0;
  if (first == std::string::npos) return Text();
  const std::size_t last = right ? text.bytes.find_last_not_of(of) : text.bytes.size() - 1;
  return last == std::string::npos ? Text() : text.part(first, last + 1 - first);
}

bool has_affix(const Values& arguments, bool starts) {
  const auto holds = [&](const Value& affix) {
    require(affix.text() != nullptr, "{} is not a prefix", affix.kind());
    const std::string& text = text_at(arguments, 0).bytes;
    return starts ? text.starts_with(affix.text()->bytes) : text.ends_with(affix.text()->bytes);
  };
  const Value affixes = argument(arguments, 1);
  return affixes.list() ? std::ranges::any_of(affixes.list()->items, holds) : holds(affixes);
}

std::int64_t num_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
}

/// In characters; -1 if it is not in the text.
std::int64_t place_in(const Values& arguments, bool from_right, Budget& budget) {
  charge_search(text_at(arguments, 0), text_at(arguments, 1), budget);
  const std::string &text = text_at(arguments, 0).bytes, &wanted = text_at(arguments, 1).bytes;
  const std::size_t found = from_right ? text.rfind(wanted) : text.find(wanted);
  return found == std::string::npos ? -1 : num_characters(std::string_view(text).substr(0, found));
}

std::int64_t num_found(const Values& arguments, Budget& budget) {
  charge_search(text_at(arguments, 0), text_at(arguments, 1), budget);
  const std::string &text = text_at(arguments, 0).bytes, &wanted = text_at(arguments, 1).bytes;
  if (wanted.empty()) return num_characters(text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
  return count;
}

std::optional<LetterCase> letter_case_of(std::string_view method) {
  static constexpr std::array<std::pair<std::string_view, LetterCase>, 5> cases = {
      {{"upper", LetterCase::upper},
       {"lower", LetterCase::lower},
       {"title", LetterCase::titled},
       {"capitalize", LetterCase::capitalized},
       {"swapcase", LetterCase::swapped}}};
  for (const auto& [name, letter_case] : cases)
    if (name == method) return letter_case;
  return std::nullopt;
}

std::optional<Value> string_method(std::string_view name, const Values& arguments, Budget& budget) {
  const Text& text = *arguments[0].text();
  charge_read(text, budget);
  if (name == "strip") return strip(arguments, true, true);
  if (name == "lstrip") return strip(arguments, true, false);
  if (name == "rstrip") return strip(arguments, false, true);
  if (name == "startswith" || name == "endswith") return has_affix(arguments, name == "startswith");
  if (name == "split") return split(arguments, budget);
  if (name == "rsplit" && arguments.size() > 1) return split_from_right(arguments, budget);
  if (name == "splitlines" && arguments.size() == 1) return Value::list(lines_of(text, budget));
  if (name == "replace") return replaced(arguments, budget);
  if (const auto letter_case = letter_case_of(name)) return cased(text, *letter_case, budget);
  if ((name == "find" || name == "rfind") && arguments.size() == 2) return place_in(arguments, name == "rfind", budget);
  if (name == "count" && arguments.size() == 2) return num_found(arguments, budget);
  if (name == "isdigit" || name == "isalpha" || name == "isalnum" || name == "isupper" || name == "islower")
    return is_all(text.bytes, name);
  if (name == "removeprefix") return has_affix(arguments, true) ? text.part(text_at(arguments, 1).bytes.size()) : text;
  if (name == "removesuffix")
    return has_affix(arguments, false) ? text.part(0, text.bytes.size() - text_at(arguments, 1).bytes.size()) : text;
  if (name == "join" && arguments.size() == 2) return filtered("join", {arguments[1], arguments[0]}, budget);
  return std::nullopt;
}

/// Markup escapes what it takes into its text, and makes Markup of all that it makes.
std::optional<Value> markup_method(std::string_view name, Values arguments, Budget& budget) {
  const auto escape = [&](Value& value) {
    if (value.text()) value = escaped(*value.text(), budget);
  };
  const auto mark = [](Value& value) {
    if (value.text()) value = marked(*value.text(), true);
  };
  const auto each = [&](const Value& of, const auto& change) {
    Values items = items_of(of, budget);
    for (Value& item : items) change(item);
    return Value::list(std::move(items));
  };
  if (name == "replace" && arguments.size() > 2) escape(arguments[2]);
  if (name == "join" && arguments.size() == 2) arguments[1] = each(arguments[1], escape);
  std::optional<Value> result = string_method(name, arguments, budget);
  if (!result) return result;
  if (result->list()) return each(*result, mark);
  mark(*result);
  return result;
}

}  // namespace

Text strip(const Values& arguments, bool left, bool right) {
  if (arguments.size() > 1) {
    const std::string& of = text_at(arguments, 1).bytes;
    require(std::ranges::all_of(of, [](char c) { return static_cast<unsigned char>(c) < 0x80; }),
            "stripping characters outside ASCII is not supported");
    return stripped(text_at(arguments, 0), of, left, right);
  }
  const Text& text = text_at(arguments, 0);
  std::string_view rest = text.bytes;
  for (std::size_t size = 0; left && (size = blank_at(rest, false)) > 0;) rest.remove_prefix(size);
  const std::size_t first = text.bytes.size() - rest.size();
  for (std::size_t size = 0; right && (size = blank_at(rest, true)) > 0;) rest.remove_suffix(size);
  return text.part(first, rest.size());
}

Text cased(Text text, LetterCase letter_case, Budget& budget) {
  constexpr std::int64_t bytes_of_a_step = 16;  // of characters that are looked up
  const bool is_upper = letter_case == LetterCase::upper;
  const bool is_ascii = std::ranges::all_of(text.bytes, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  text.is_markup = false;
  if (is_ascii && (is_upper || letter_case == LetterCase::lower)) {
    for (char& c : text.bytes) {
      if (is_upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
      if (!is_upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    return text;
  }
  budget.step(std::ssize(text.bytes) / bytes_of_a_step);
  Text result;
  std::size_t at = 0;
  for_each_cased(text.bytes, letter_case, [&](std::size_t size, std::string_view becomes) {
    result.append(Text(becomes, text.origins[at]));
    at += size;
  });
  return result;
}

Value method(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (const Map* map = of.map()) {
    if (name == "items") return pairs(of, budget);
    if (name == "keys") return Value::list(items_of(of, budget));
    if (name == "get" && arguments.size() >= 2) {
      const Value* found = map->find(text_at(arguments, 1).bytes);
      return found ? *found : arguments.size() > 2 ? arguments[2] : Value(None{});
    }
    if (name == "values") {
      Values values;
      for (const auto& [key, item] : map->items) budget.step(), values.push_back(item);
      return Value::list(std::move(values));
    }
  }
  if (of.text())
    if (auto result = is_markup(of) ? markup_method(name, arguments, budget) : string_method(name, arguments, budget))
      return *std::move(result);
  if (of.list() && name == "count" && arguments.size() == 2)
    return static_cast<std::int64_t>(std::ranges::count_if(
        of.list()->items, [&](const Value& item) { return equal_in(item, arguments[1], budget); }));
  throw Error(fmt::format("{} has no method {} with {} arguments", of.kind(), name, arguments.size() - 1));
}

}  // namespace echelon::jinja
