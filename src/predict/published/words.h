// Words in the free text of tables.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace echelon {

[[nodiscard]] inline std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

[[nodiscard]] inline std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

[[nodiscard]] inline bool has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

}  // namespace echelon
