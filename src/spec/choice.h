// Choices of a config by their names, in any letter case.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace echelon {

[[nodiscard]] inline bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The choice of that name (name_of). Throws Error naming `key` and the nearest.
template <class Choice, std::size_t n>
[[nodiscard]] Choice parse_choice(std::string_view key, std::string_view text, const Choice (&choices)[n]) {
  std::vector<std::string_view> names;
  for (const Choice choice : choices) {
    if (equal_but_for_case(text, name_of(choice))) return choice;
    names.push_back(name_of(choice));
  }
  throw Error(
      fmt::format("{} = '{}' is none of {}; nearest: {}", key, text, fmt::join(names, ", "), nearest(text, names)));
}

}  // namespace echelon
