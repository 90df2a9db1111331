// The data types of tensors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace echelon {

enum class DType : std::uint8_t { float32, float64, bfloat16, float16, int32, int16 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 4;
    case DType::float64: return 8;
    case DType::bfloat16: return 2;
    case DType::float16: return 2;
    case DType::int32: return 4;
    case DType::int16: return 2;
  }
  return 0;
}

[[nodiscard]] std::string_view name_of(DType dtype);

/// "float32" | "float64" | "bfloat16" | "float16" | "int32" | "int16". Throws Error naming the closest name.
[[nodiscard]] DType parse_dtype(std::string_view name);

/// The type of sums over `dtype` and of statistics: float64 for float64, else float32.
[[nodiscard]] constexpr DType accumulate_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

/// The upper half of a float32, rounded to nearest even.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffU) > 0x7f800000U;
    bits = is_nan ? static_cast<std::uint16_t>((word >> 16) | 0x40U)
                  : static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(bfloat16) == 2);

/// IEEE 754's binary16: 11 bits of precision from 2^-14 to 65504, fewer down to 2^-24; rounded to nearest even.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) {
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
static_assert(sizeof(float16) == 2);

/// The 16-bit types: values are stored in them and computed with in float32.
template <class T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
[[nodiscard]] constexpr bool is_half_dtype(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }
[[nodiscard]] constexpr bool is_integer(DType dtype) { return dtype == DType::int32 || dtype == DType::int16; }

/// x in another format, rounded to nearest even; float64 becomes one of 16 bits through float32.
template <class To, class From>
[[nodiscard]] inline To to(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (is_half<From>)
    return to<To>(static_cast<float>(x));
  else if constexpr (is_half<To>)
    return To(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <class T>
inline constexpr DType dtype_of = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<float16> = DType::float16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::int16;

}  // namespace echelon
