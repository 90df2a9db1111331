// Formats text and values on a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

enum class HtmlUnit : std::uint8_t { number, seconds, bytes, fraction };  // a fraction is shown in percent

/// Examples: "1.23 GiB", "45.6 ms", "12.3 %", "1,234". Three digits if these suffice, an en dash for values that are
/// not finite.
[[nodiscard]] std::string text_of(HtmlUnit unit, double amount);

/// Escapes text for use between tags and in quoted attributes: & < > " ' are named, control characters become U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text);

/// Escapes JSON for use inside a script element: without any '<'.
[[nodiscard]] std::string embedded(std::string json);

}  // namespace echelon
