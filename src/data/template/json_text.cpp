// As Python's json.dumps with ensure_ascii=False.
#include "data/template/operations.h"

#include <fmt/format.h>

namespace echelon::jinja {
namespace {

Text json_string(const Text& text, Budget& budget) {
  static constexpr std::string_view from = "\"\\\n\r\t\b\f", to = "\"\\nrtbf";
  Text result("\"");
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const std::size_t found = from.find(c);
    if (found != std::string_view::npos) {
      budget.append(result, Text(fmt::format("\\{}", to[found]), text.origins[i]));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      budget.append(result, Text(fmt::format("\\u{:04x}", static_cast<unsigned char>(c)), text.origins[i]));
    } else {
      budget.grow(1);
      result.bytes += c;
      result.origins += text.origins[i];
    }
  }
  result.append(Text("\""));
  return result;
}

std::string separator(bool is_first, int indent, int depth) {
  if (indent < 0) return is_first ? "" : ", ";
  return fmt::format("{}\n{}", is_first ? "" : ",", std::string(static_cast<std::size_t>(indent * depth), ' '));
}

}  // namespace

Text json_of(const Value& value, int indent, int depth, Budget& budget) {
  budget.step();
  if (const Text* text = value.text()) return json_string(*text, budget);
  if (value.is<None>()) return Text("null");
  if (value.is<bool>()) return Text(value.as<bool>() ? "true" : "false");
  if (value.is_number()) return to_text(value);
  require(value.list() || value.map(), "{} has no JSON", value.kind());
  Text result(value.list() ? "[" : "{");
  bool is_first = true;
  const auto separate = [&] {
    budget.append(result, Text(separator(is_first, indent, depth + 1)));
    is_first = false;
  };
  if (value.list())
    for (const Value& item : value.list()->items)
      separate(), budget.append(result, json_of(item, indent, depth + 1, budget));
  if (value.map())
    for (const auto& [key, item] : value.map()->items) {
      separate();
      budget.append(result, json_string(key, budget));
      budget.append(result, Text(": "));
      budget.append(result, json_of(item, indent, depth + 1, budget));
    }
  if (!is_first && indent >= 0) budget.append(result, Text(separator(true, indent, depth)));
  result.append(Text(value.list() ? "]" : "}"));
  return result;
}

}  // namespace echelon::jinja
