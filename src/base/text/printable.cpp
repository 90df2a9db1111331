#include "base/text/printable.h"

#include "base/text/utf8.h"

#include <fmt/format.h>

namespace echelon {
namespace {

/// C0, DEL and C1.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_character_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length != 0 && !is_control(character))
      out += character;
    else
      for (const char byte : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return escaped(text);
  const std::size_t half = most_bytes / 2;
  return escaped(text.substr(0, half)) + " ... " + escaped(text.substr(text.size() - half));
}

}  // namespace echelon
