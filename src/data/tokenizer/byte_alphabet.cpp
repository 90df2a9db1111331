#include "data/tokenizer/byte_alphabet.h"

#include "base/text/utf8.h"

namespace echelon {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<char32_t, 256> character{};  // of a byte
  std::array<int, 324> byte{};            // of a character; -1 for none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    alphabet.character[b] = stands_for_itself(b) ? b : next++;
    alphabet.byte[alphabet.character[b]] = static_cast<int>(b);
  }
  return alphabet;
}

constexpr Alphabet alphabet = make_alphabet();

}  // namespace

std::array<std::uint8_t, 256> bytes_in_vocabulary_order() {
  std::array<std::uint8_t, 256> bytes{};
  std::size_t next = 0;
  for (const bool wanted : {true, false}) {
    for (unsigned b = 0; b < 256; ++b) {
      if (stands_for_itself(b) == wanted) bytes[next++] = static_cast<std::uint8_t>(b);
    }
  }
  return bytes;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const char32_t c = alphabet.character[static_cast<std::uint8_t>(byte)];
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {  // all below U+0800: two bytes
      text += static_cast<char>(0xc0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return text;
}

std::string from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character_length(text.substr(at));
    char32_t c = static_cast<std::uint8_t>(text[at]);
    if (length == 2) c = (c & 0x1f) << 6 | (static_cast<std::uint8_t>(text[at + 1]) & 0x3f);
    const bool is_known = (length == 1 || length == 2) && c < alphabet.byte.size() && alphabet.byte[c] >= 0;
    if (!is_known) return std::string(text);
    bytes += static_cast<char>(alphabet.byte[c]);
    at += length;
  }
  return bytes;
}

}  // namespace echelon
