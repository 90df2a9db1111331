// Philox4x32-10, a counter-based generator: random numbers as a pure function of a counter and a key (Salmon et al.
// 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace echelon {

inline constexpr int philox_rounds = 10;
inline constexpr std::uint64_t philox_multiplier_0 = 0xD2511F53, philox_multiplier_1 = 0xCD9E8D57;
inline constexpr std::uint32_t philox_weyl_0 = 0x9E3779B9, philox_weyl_1 = 0xBB67AE85;  // what a round adds to the key

[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                                   std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t product_0 = philox_multiplier_0 * counter[0], product_1 = philox_multiplier_1 * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product_0)};
    key = {key[0] + philox_weyl_0, key[1] + philox_weyl_1};
  }
  return counter;
}

}  // namespace echelon
