// Makes text from inputs safe to print: a terminal must not interpret it as control sequences.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// Replaces each control character and each byte that is not valid UTF-8 with an escape such as "\x1b". Replaces the
/// middle of text longer than `most_bytes` with "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t most_bytes = 1000);

}  // namespace echelon
