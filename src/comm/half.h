// IEEE 754 binary16 to and from float32, rounded to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace echelon {

struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = word >> 16 & 0x8000U, magnitude = word & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
      half = 0x7e00U;  // NaN
    } else if (magnitude >= 0x477ff000U) {
      half = 0x7c00U;  // 65520 and above round to infinity
    } else if (magnitude < 0x38800000U) {
      // Subnormal: adding 0.5 puts the last bit of 2^-24 at the end of the float's mantissa, and the addition rounds.
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    } else {
      half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 0x1fU, mantissa = bits & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | mantissa << 13);
    if (exponent == 0) {
      const float value = static_cast<float>(mantissa) * 0x1p-24F;
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | (exponent + 112U) << 23 | mantissa << 13);
  }
};
static_assert(sizeof(Half) == 2);

}  // namespace echelon
