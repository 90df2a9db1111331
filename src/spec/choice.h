// Parses choices of a config by name.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>
#include <vector>

namespace echelon {

/// A key has no choice of that name. The sentence equals validate()'s: the reader adds no origin to it.
class UnknownChoice : public Error {
 public:
  using Error::Error;
};

[[nodiscard]] inline bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The choice of that name (name_of), case-insensitive. Throws Error naming `key` and the closest valid value.
template <class Choice, std::size_t n>
[[nodiscard]] Choice parse_choice(std::string_view key, std::string_view text, const Choice (&choices)[n]) {
  std::vector<std::string_view> names;
  for (const Choice choice : choices) {
    if (equal_but_for_case(text, name_of(choice))) return choice;
    names.push_back(name_of(choice));
  }
  throw Error(fmt::format("{} = '{}' is not one of {}; did you mean {}?", key, text, fmt::join(names, ", "),
                          closest_name(text, names)));
}

/// The choice of exactly that name (name_of). `not_yet`: names of choices that are planned but not supported. Throws
/// UnknownChoice naming `key` and the closest valid value.
template <class Choice>
[[nodiscard]] Choice parse_exact_choice(std::string_view key, std::string_view text, std::span<const Choice> choices,
                                        std::span<const std::string_view> not_yet = {}) {
  std::vector<std::string_view> names;
  for (const Choice choice : choices) {
    if (text == name_of(choice)) return choice;
    names.push_back(name_of(choice));
  }
  if (std::ranges::find(not_yet, text) != not_yet.end())
    throw UnknownChoice(fmt::format("{} = '{}' is not supported yet; use {}", key, text, fmt::join(names, " or ")));
  std::vector<std::string_view> known = names;
  known.insert(known.end(), not_yet.begin(), not_yet.end());
  throw UnknownChoice(fmt::format("{} = '{}' is not one of {}; did you mean {}?", key, text, fmt::join(names, ", "),
                                  closest_name(text, known)));
}

}  // namespace echelon
