// Validates UTF-8 (Unicode 15, table 3-7: no overlong encodings, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string_view>

namespace echelon {

/// Bytes of the first character, 1 to 4; 0 if text is empty or does not start with a valid one.
[[nodiscard]] std::size_t utf8_character_length(std::string_view text);

/// Bytes of the longest prefix that is valid UTF-8.
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text);

}  // namespace echelon
