// As Python's json.dumps with ensure_ascii=False.
#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon::jinja {
namespace {

Text json_string(const Text& text, const JsonStyle& style, Budget& budget) {
  static constexpr std::string_view from = "\"\\\n\r\t\b\f", to = "\"\\nrtbf";
  Text result("\"");
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const std::size_t found = from.find(c);
    if (found != std::string_view::npos) {
      budget.append(result, Text(fmt::format("\\{}", to[found]), text.origins[i]));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      budget.append(result, Text(fmt::format("\\u{:04x}", static_cast<unsigned char>(c)), text.origins[i]));
    } else if (style.is_ascii && static_cast<unsigned char>(c) >= 0x7f) {
      require(static_cast<unsigned char>(c) == 0x7f, "tojson with ensure_ascii=true takes only ASCII");
      budget.append(result, text.part(i, 1));
    } else {
      budget.grow(1);
      result.bytes += c;
      result.origins += text.origins[i];
    }
  }
  result.append(Text("\""));
  return result;
}

std::string separator(bool is_first, const JsonStyle& style, int depth) {
  if (style.indent < 0) return is_first ? "" : style.between;
  return fmt::format("{}\n{}", is_first ? "" : style.between,
                     std::string(static_cast<std::size_t>(style.indent * depth), ' '));
}

Text number_text(const Value& value) {
  require(!value.is<double>() || std::isfinite(value.real()), "{} has no JSON", value.real());
  return to_text(value);
}

}  // namespace

Text json_of(const Value& value, const JsonStyle& style, int depth, Budget& budget) {
  budget.step();
  if (const Text* text = value.text()) return json_string(*text, style, budget);
  if (value.is<None>()) return Text("null");
  if (value.is<bool>()) return Text(value.as<bool>() ? "true" : "false");
  if (value.is_number()) return number_text(value);
  require(value.list() || value.map(), "{} has no JSON", value.kind());
  Text result(value.list() ? "[" : "{");
  bool is_first = true;
  const auto separate = [&] {
    budget.append(result, Text(separator(is_first, style, depth + 1)));
    is_first = false;
  };
  if (value.list())
    for (const Value& item : value.list()->items)
      separate(), budget.append(result, json_of(item, style, depth + 1, budget));
  if (value.map()) {
    auto items = value.map()->items;
    if (style.sorts_keys) std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first.bytes; });
    for (const auto& [key, item] : items) {
      separate();
      budget.append(result, json_string(key, style, budget));
      budget.append(result, Text(style.after_key));
      budget.append(result, json_of(item, style, depth + 1, budget));
    }
  }
  if (!is_first && style.indent >= 0) budget.append(result, Text(separator(true, style, depth)));
  result.append(Text(value.list() ? "]" : "}"));
  return result;
}

}  // namespace echelon::jinja
