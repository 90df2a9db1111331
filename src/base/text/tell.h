// What the program tells on the standard error output.
#pragma once

#include <fmt/format.h>

#include <cstdio>

namespace echelon {

/// A failure has no place left to be told, so it is ignored.
template <class... T>
void tell(fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace echelon
