// Words and numbers on a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

enum class HtmlUnit : std::uint8_t { number, seconds, bytes, fraction };  // a fraction is shown in percent

/// For eyes: "1.23 GiB", "45.6 ms", "12.3 %", "1,234"; three digits where that says enough, an en dash for what is not
/// finite.
[[nodiscard]] std::string text_of(HtmlUnit unit, double amount);

/// Text as it may stand between tags and in quoted attributes, whatever it holds: & < > " ' are named, control
/// characters become U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text);

/// JSON as it may stand inside of a script element: without any '<'.
[[nodiscard]] std::string embedded(std::string json);

}  // namespace echelon
