// JSON values in error messages.
#pragma once

#include <string>

namespace echelon {

/// A value of nlohmann::json as text, cut off: a crafted one may be nested a million times.
template <class Json>
[[nodiscard]] std::string shown_json(const Json& value, int depth = 0) {
  constexpr int most_depth = 3;
  constexpr std::size_t most_items = 16, most_bytes = 200;
  // How a number of Python that JSON lacks is kept in a model's config.
  if (value.is_object() && value.size() == 1 && value.contains("__float__"))
    return shown_json(value.at("__float__"), depth);
  if (!value.is_structured()) {
    // Strict dumping fails on bytes that are not UTF-8.
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > most_bytes) text.replace(most_bytes, std::string::npos, "...");
    return text;
  }
  std::string items;
  std::size_t num_items = 0;
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (!items.empty()) items += ',';
    if (depth == most_depth || num_items++ == most_items || items.size() > most_bytes) {
      items += "...";
      break;
    }
    if (value.is_object()) items += shown_json(Json(item.key())) + ':';
    items += shown_json(*item, depth + 1);
  }
  return value.is_object() ? "{" + items + "}" : "[" + items + "]";
}

}  // namespace echelon
