// A float32 weight in two halves of 16 bits: the closest bfloat16, which the model computes with, and the remainder in
// units of the float32's last place. An optimizer that stores the remainder needs 2 more bytes per parameter for master
// weights instead of 4 (the "parameter remainders" of Apex's distributed Adam and of Megatron).
#pragma once

#include <bit>
#include <cstdint>

namespace echelon {

struct SplitFloat {
  // The closest bfloat16; of two equally close ones the larger in magnitude, else an even and an odd one could have the
  // same remainder.
  std::uint16_t upper = 0;
  std::int16_t remainder = 0;
};

/// A NaN keeps its upper half alone.
[[nodiscard]] constexpr SplitFloat split(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(word >> 16 | 0x40U), 0};
  return {static_cast<std::uint16_t>((word + 0x8000U) >> 16), static_cast<std::int16_t>(word & 0xffffU)};
}
[[nodiscard]] constexpr float joined(SplitFloat x) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(x.upper) << 16) +
                              static_cast<std::uint32_t>(std::int32_t{x.remainder}));
}

}  // namespace echelon
