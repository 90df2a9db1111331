// The number formats of tensors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace echelon {

enum class DType : std::uint8_t { float32, float64, bfloat16, float16, int32 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 4;
    case DType::float64: return 8;
    case DType::bfloat16: return 2;
    case DType::float16: return 2;
    case DType::int32: return 4;
  }
  return 0;
}

[[nodiscard]] std::string_view name_of(DType dtype);

/// "float32" | "float64" | "bfloat16" | "float16" | "int32". Throws Error naming the nearest one.
[[nodiscard]] DType parse_dtype(std::string_view name);

/// The format in which sums over `dtype` are formed and statistics are kept: float64 for float64, else float32.
[[nodiscard]] constexpr DType accumulate_dtype(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

/// The upper half of a float32, rounded to nearest even.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffU) > 0x7f800000U;
    bits = is_nan ? static_cast<std::uint16_t>((word >> 16) | 0x40U) : static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(bfloat16) == 2);

template <class T>
inline constexpr DType dtype_of = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;

}  // namespace echelon
