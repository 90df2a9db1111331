#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

// What Python's str.strip takes, in UTF-8.
constexpr std::array<std::string_view, 29> text_blanks = {
    " ",      "\t",     "\n",     "\r",     "\f",     "\v",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
    "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

/// The size of the blank at one end of a text, or 0.
std::size_t blank_at(std::string_view text, bool end) {
  for (const std::string_view blank : text_blanks)
    if (end ? text.ends_with(blank) : text.starts_with(blank)) return blank.size();
  return 0;
}

const Text& text_at(const Values& arguments, std::size_t i) {
  require(i < arguments.size() && arguments[i].text(), "argument {} is not a string", i);
  return *arguments[i].text();
}

Text cased(Text text, bool upper) {
  for (char& c : text.bytes) {
    require(static_cast<unsigned char>(c) < 0x80, "upper and lower case of letters outside ASCII is not supported");
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

Text capitalized(const Text& text) {
  Text result = cased(text.part(0, 1), true);
  if (text.bytes.size() > 1) result.append(cased(text.part(1), false));
  return result;
}

Value length(const Value& of, Budget& budget) { return static_cast<std::int64_t>(items_of(of, budget).size()); }

Text join(const Values& arguments, Budget& budget) {
  Text text;
  const Values items = items_of(arguments[0], budget);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && arguments.size() > 1) budget.append(text, text_at(arguments, 1));
    text.append(text_of(items[i], budget));
  }
  return text;
}

Value pairs(const Value& of, Budget& budget) {
  require(of.map() || of.is<Undefined>(), "{} has no pairs", of.kind());
  Values result;
  if (!of.map()) return Value::list({});
  for (const auto& [key, item] : of.map()->items) {
    budget.step();
    result.push_back(Value::list({key, item}));
  }
  return Value::list(std::move(result));
}

Value split(const Values& arguments, Budget& budget) {
  const Text &text = text_at(arguments, 0), &by = text_at(arguments, 1);
  require(!by.bytes.empty(), "split needs a separator");
  budget.grow(text.bytes.size());
  Values parts;
  std::size_t at = 0;
  for (std::size_t found = 0; (found = text.bytes.find(by.bytes, at)) != std::string::npos;
       at = found + by.bytes.size())
    parts.emplace_back(text.part(at, found - at));
  parts.emplace_back(text.part(at));
  return Value::list(std::move(parts));
}

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

}  // namespace

Text stripped(const Text& text, std::string_view of, bool left, bool right) {
  const std::size_t first = left ? text.bytes.find_first_not_of(of) : 0;
  if (first == std::string::npos) return Text();
  const std::size_t last = right ? text.bytes.find_last_not_of(of) : text.bytes.size() - 1;
  return last == std::string::npos ? Text() : text.part(first, last + 1 - first);
}

Text replaced(const Text& text, const Text& from, const Text& to, Budget& budget) {
  require(!from.bytes.empty(), "replace needs a string to search for");
  Text result;
  std::size_t at = 0;
  for (std::size_t found = 0; (found = text.bytes.find(from.bytes, at)) != std::string::npos;
       at = found + from.bytes.size()) {
    budget.step();
    budget.append(result, text.part(at, found - at));
    budget.append(result, to);
  }
  budget.append(result, text.part(at));
  return result;
}

Value filtered(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "default" || name == "d") {
    const bool is_missing = arguments.size() > 2 && arguments[2].is_true() ? !of.is_true() : of.is<Undefined>();
    return !is_missing ? of : arguments.size() > 1 ? arguments[1] : Value(Text());
  }
  if (name == "length" || name == "count") return length(of, budget);
  if (name == "trim") return arguments[0].text() ? strip(arguments, true, true) : text_of(of, budget);
  if (name == "string") return text_of(of, budget);
  if (name == "safe") return of;
  if (name == "upper" || name == "lower") return cased(text_of(of, budget), name == "upper");
  if (name == "capitalize") return capitalized(text_of(of, budget));
  if (name == "int" && arguments.size() == 1 && of.is_whole()) return of.whole();
  if (name == "replace" && arguments.size() == 3)
    return replaced(text_of(of, budget), text_at(arguments, 1), text_at(arguments, 2), budget);
  if (name == "join") return join(arguments, budget);
  if (name == "list") return Value::list(items_of(of, budget));
  if (name == "items") return pairs(of, budget);
  if (name == "tojson") {
    const bool is_indented = arguments.size() > 1 && arguments[1].is_whole();
    require(!is_indented || (arguments[1].whole() >= 0 && arguments[1].whole() <= 16), "tojson indents by 0 to 16");
    return json_of(of, is_indented ? static_cast<int>(arguments[1].whole()) : -1, 0, budget);
  }
  if (name == "first" || name == "last") {
    const Values items = items_of(of, budget);
    return items.empty() ? Value(Undefined{std::string(name)}) : name == "first" ? items.front() : items.back();
  }
  if (auto result = list_filtered(name, arguments, budget)) return *std::move(result);
  throw Error(fmt::format("the filter {} with {} arguments is not supported", name, arguments.size() - 1));
}

bool tested(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "defined") return !of.is<Undefined>();
  if (name == "undefined") return of.is<Undefined>();
  if (name == "none") return of.is<None>();
  if (name == "string") return of.text() != nullptr;
  if (name == "mapping") return of.map() != nullptr;
  if (name == "iterable" || name == "sequence") return of.list() || of.map() || of.text();
  if (name == "boolean") return of.is<bool>();
  if (name == "integer") return of.is<std::int64_t>();
  if (name == "number") return of.is_number();
  if (name == "true" || name == "false") return of.is<bool>() && of.as<bool>() == (name == "true");
  if (arguments.size() == 2 && (name == "equalto" || name == "eq" || name == "=="))
    return equal_in(of, arguments[1], budget);
  if (arguments.size() == 2 && name == "in") return binary("in", of, arguments[1], budget).is_true();
  throw Error(fmt::format("the test {} is not supported", name));
}

Value method(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (of.map() && name == "items") return pairs(of, budget);
  if (of.map() && name == "keys") return Value::list(items_of(of, budget));
  if (of.map() && name == "get" && arguments.size() >= 2) {
    const Value* found = of.map()->find(text_at(arguments, 1).bytes);
    return found ? *found : arguments.size() > 2 ? arguments[2] : Value(None{});
  }
  if (of.text()) {
    const Text& text = *of.text();
    if (name == "strip") return strip(arguments, true, true);
    if (name == "lstrip") return strip(arguments, true, false);
    if (name == "rstrip") return strip(arguments, false, true);
    if (name == "startswith") return text.bytes.starts_with(text_at(arguments, 1).bytes);
    if (name == "endswith") return text.bytes.ends_with(text_at(arguments, 1).bytes);
    if (name == "split" && arguments.size() == 2) return split(arguments, budget);
    if (name == "replace" && arguments.size() == 3)
      return replaced(text, text_at(arguments, 1), text_at(arguments, 2), budget);
    if (name == "upper" || name == "lower") return cased(text, name == "upper");
  }
  throw Error(fmt::format("{} has no method {} with {} arguments", of.kind(), name, arguments.size() - 1));
}

}  // namespace echelon::jinja
