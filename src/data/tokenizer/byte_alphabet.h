// The printable characters that represent bytes in files of byte-level tokenizers. Printable Latin-1 bytes map to
// themselves, the other 68 bytes to U+0100 and up in their order (Radford et al. 2019, GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

/// The 256 bytes in GPT-2's order of ids: those that map to themselves first.
[[nodiscard]] std::array<std::uint8_t, 256> bytes_in_vocabulary_order();

/// Bytes as the UTF-8 of their printable characters: " a\n" becomes "ĠaĊ".
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

/// The inverse. A text with a character that represents no byte is returned unchanged, as the files define.
[[nodiscard]] std::string from_byte_alphabet(std::string_view text);

}  // namespace echelon
