// The checksum of files that Python scripts make.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace echelon {

/// zlib's.
inline std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = (made[i] & 1) != 0 ? 0xedb88320u ^ made[i] >> 1 : made[i] >> 1;
    }
    return made;
  }();
  std::uint32_t crc = ~before;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

}  // namespace echelon
