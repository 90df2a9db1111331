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

/// Whether a model of hardware is named: an H1000 is no H100.
[[nodiscard]] inline bool names_model(std::string_view text, std::string_view model) {
  for (std::size_t at = text.find(model); at != text.npos; at = text.find(model, at + 1)) {
    const std::size_t end = at + model.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

[[nodiscard]] inline bool has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

/// From 2025 on.
[[nodiscard]] inline bool is_recent_nemo(std::string_view software) {
  return has(software, "nemo") && (has(software, "2025") || has(software, "nemo 25") || has(software, "nemo 26"));
}

}  // namespace echelon
