// Text of an input on its way to a terminal, which must not take it for commands.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// With "\x1b" in place of a control character and of a byte that is no UTF-8, and "..." in place of the middle of what
/// is longer than `most_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most_bytes = 1000);

}  // namespace echelon
