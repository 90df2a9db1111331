// The printable stand-ins for bytes that byte-level tokenizers write in their files: printable Latin-1 stands for
// itself, the other 68 bytes for U+0100 and up in their order (Radford et al. 2019, GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

/// The 256 bytes in GPT-2's order of ids: those that stand for themselves first.
[[nodiscard]] std::array<std::uint8_t, 256> bytes_in_vocabulary_order();

/// Bytes as the UTF-8 of their stand-ins: " a\n" becomes "ĠaĊ".
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

/// The inverse. A text with a character that stands for no byte is returned as it is, which is how the files mean it.
[[nodiscard]] std::string from_byte_alphabet(std::string_view text);

}  // namespace echelon
