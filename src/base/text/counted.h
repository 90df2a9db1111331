// Counts with their nouns in messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace echelon {

/// "rank" for 1, else "ranks"; also "microbatches", "entries".
template <class Count>
[[nodiscard]] std::string plural(Count count, std::string_view noun) {
  std::string text(noun);
  if (count == Count{1}) return text;
  const bool ends_in_consonant_and_y =
      noun.size() > 1 && noun.back() == 'y' && std::string_view("aeiou").find(noun[noun.size() - 2]) == noun.npos;
  if (ends_in_consonant_and_y) return text.replace(text.size() - 1, 1, "ies");
  const bool takes_es = noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") || noun.ends_with("sh");
  return text + (takes_es ? "es" : "s");
}

/// "1 rank", "2 ranks".
template <class Count>
[[nodiscard]] std::string counted(Count count, std::string_view noun) {
  return fmt::format("{} {}", count, plural(count, noun));
}

}  // namespace echelon
