#include "data/template/value.h"

#include "base/error.h"
#include "base/text/utf8.h"
#include "data/tokenizer/unicode/code_points.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon::jinja {
namespace {

constexpr int most_depth = 64;
constexpr std::size_t most_keys = 1000;  // a mapping is searched key by key

int depth_above(int depth, const Value& item) {
  require(!item.is<std::shared_ptr<Namespace>>(), "a namespace inside another value is not supported");
  depth = std::max(depth, item.depth() + 1);
  require(depth <= most_depth, "values are nested more than {} deep", most_depth);
  return depth;
}

char32_t code_at(std::string_view text, std::size_t at) { return next_code_point(text, at); }

/// Bytes of a control, format or blank character that Python's `repr` escapes, or 0.
std::size_t unprintable_at(std::string_view text, std::size_t at) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 10> ranges = {{{0x0, 0x1f},
                                                                            {0x7f, 0xa0},
                                                                            {0xad, 0xad},
                                                                            {0x1680, 0x1680},
                                                                            {0x2000, 0x200f},
                                                                            {0x2028, 0x202f},
                                                                            {0x205f, 0x206f},
                                                                            {0x3000, 0x3000},
                                                                            {0xe000, 0xf8ff},
                                                                            {0xfeff, 0xfeff}}};
  const std::size_t size = utf8_character_length(text.substr(at));
  if (size == 0) return 0;
  const char32_t code = code_at(text, at);
  const bool is_one =
      std::ranges::any_of(ranges, [&](auto range) { return range.first <= code && code <= range.second; });
  return is_one ? size : 0;
}

Text quoted_text(const Text& text) {
  if (text.is_markup) {
    Text plain = text, result("Markup(");
    plain.is_markup = false;
    result.append(quoted_text(plain));
    result.append(Text(")"));
    return result;
  }
  const bool is_double = text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
  const std::string quote = is_double ? "\"" : "'";
  Text result(quote);
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    static constexpr std::string_view named = "\n\t\r", names = "ntr";
    const std::size_t name = named.find(c), escape = name != named.npos ? 1 : unprintable_at(text.bytes, i);
    if (name != named.npos) {
      result.append(Text(fmt::format("\\{}", names[name]), text.origins[i]));
    } else if (escape == 1) {
      result.append(Text(fmt::format("\\x{:02x}", static_cast<unsigned char>(c)), text.origins[i]));
    } else if (escape > 1) {
      const char32_t code = code_at(text.bytes, i);
      result.append(Text(
          code < 0x100 ? fmt::format("\\x{:02x}", std::uint32_t{code}) : fmt::format("\\u{:04x}", std::uint32_t{code}),
          text.origins[i]));
      i += escape - 1;
    } else {
      if (c == '\\' || (c == '\'' && !is_double)) result.append(Text("\\"));
      result.append(text.part(i, 1));
    }
  }
  result.append(Text(quote));
  return result;
}

std::string real_text(double value) {
  if (std::isfinite(value) && value == std::floor(value) && std::abs(value) < 1e16) return fmt::format("{:.1f}", value);
  return fmt::format("{}", value);
}

Text map_text(const Map& map) {
  Text result("{");
  for (const auto& [key, item] : map.items) {
    if (result.bytes.size() > 1) result.append(Text(", "));
    result.append(quoted_text(key));
    result.append(Text(": "));
    result.append(to_text(item, true));
  }
  result.append(Text("}"));
  return result;
}

Text list_text(const List& list) {
  Text result(list.is_tuple ? "(" : "[");
  for (const Value& item : list.items) {
    if (result.bytes.size() > 1) result.append(Text(", "));
    result.append(to_text(item, true));
  }
  if (list.is_tuple && list.items.size() == 1) result.append(Text(","));
  result.append(Text(list.is_tuple ? ")" : "]"));
  return result;
}

}  // namespace

const Value* Map::find(std::string_view key) const {
  const auto found = std::ranges::find_if(items, [&](const auto& item) { return item.first.bytes == key; });
  return found == items.end() ? nullptr : &found->second;
}

void Map::set(const Text& key, Value value) {
  depth = depth_above(depth, value);
  const auto found = std::ranges::find_if(items, [&](const auto& item) { return item.first.bytes == key.bytes; });
  if (found == items.end()) {
    require(items.size() < most_keys, "a mapping has more than {} keys", most_keys);
    items.emplace_back(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  List list{.items = std::move(items), .is_tuple = is_tuple};
  for (const Value& item : list.items) list.depth = depth_above(list.depth, item);
  return std::make_shared<const List>(std::move(list));
}

Value Value::map(Map map) { return std::make_shared<const Map>(std::move(map)); }

bool Value::is_true() const {
  if (is<Undefined>() || is<None>()) return false;
  if (is_number()) return real() != 0;
  if (const Text* t = text()) return !t->bytes.empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Map* m = map()) return !m->items.empty();
  return true;
}

std::string_view Value::kind() const {
  static constexpr std::array<std::string_view, 10> names = {"undefined",   "none",      "a boolean", "an integer",
                                                             "a float",     "a string",  "a list",    "a mapping",
                                                             "a namespace", "a function"};
  return names.at(kind_.index());
}

std::int64_t Value::whole() const {
  require(is_whole(), "{} is not an integer", kind());
  return is<bool>() ? as<bool>() : as<std::int64_t>();
}

int Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Map* m = map()) return m->depth;
  return 0;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.text() && b.text()) return a.text()->bytes == b.text()->bytes;
  if (a.list() && b.list() && a.list()->is_tuple != b.list()->is_tuple) return false;
  if (a.list() && b.list()) return std::ranges::equal(a.list()->items, b.list()->items, equal);
  if (a.map() && b.map()) {
    const auto has = [&](const auto& item) {
      const Value* other = b.map()->find(item.first.bytes);
      return other != nullptr && equal(item.second, *other);
    };
    return a.map()->items.size() == b.map()->items.size() && std::ranges::all_of(a.map()->items, has);
  }
  return (a.is<None>() && b.is<None>()) || (a.is<Undefined>() && b.is<Undefined>());
}

Text to_text(const Value& value, bool quoted) {
  if (value.is<None>()) return Text("None");
  if (value.is<bool>()) return Text(value.as<bool>() ? "True" : "False");
  if (value.is<std::int64_t>()) return Text(fmt::format("{}", value.as<std::int64_t>()));
  if (value.is<double>()) return Text(real_text(value.as<double>()));
  if (const Text* text = value.text()) return quoted ? quoted_text(*text) : *text;
  if (const List* list = value.list()) return list_text(*list);
  if (const Map* map = value.map()) return map_text(*map);
  require(value.is<Undefined>(), "{} has no text", value.kind());
  return Text();
}

}  // namespace echelon::jinja
