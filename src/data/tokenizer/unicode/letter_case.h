// The case of letters as Python's str has it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace echelon {

/// str.upper, lower, title, capitalize and swapcase. Some letters become several, and a sigma at the end of a word is
/// another one in lower case.
enum class LetterCase : std::uint8_t { upper, lower, titled, capitalized, swapped };

/// Calls visit(size, cased) for each character in order: its bytes in the text, and what it becomes. Bytes that are not
/// UTF-8 are characters that stay.
void for_each_cased(std::string_view text, LetterCase letter_case,
                    const std::function<void(std::size_t size, std::string_view cased)>& visit);

/// str.isupper, islower, isalpha, isdigit and isalnum, by the name of the method. Bytes that are not UTF-8 are neither.
[[nodiscard]] bool is_all(std::string_view text, std::string_view method);

}  // namespace echelon
